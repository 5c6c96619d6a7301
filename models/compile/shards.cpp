// Pass "shards": gathers parameters before each use of a layer and reduces gradients after each micro-batch's backward,
// unless they are reduced once a step, where replicas divide them (ZeRO, arXiv:1910.02054; models/compile/divide.cpp
// decides which rank holds what). models/compile/gradients.cpp makes the reductions that happen once a step.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <variant>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile_passes.hpp"
#include "models/compile/gradient_shares.hpp"

namespace motley {
namespace {

// A block's uses of a shard: the first kernel that reads its parameters, and the last that adds to its gradients.
struct Uses {
  std::optional<int> first_read, last_add;
  std::set<TensorId> gathered;
};

// Adds the gathers and reductions of one rank program's shards.
class ShardCollectives {
 public:
  // `shared`: group slots of the shards that other rank programs hold too. `parts_slot`: the group that sums
  // gradients of which each rank has a part; it is set if there are any.
  ShardCollectives(const Job& job, RankProgram& rank_program, std::optional<GroupSlot> parts_slot,
                   std::set<GroupSlot> shared)
      : job_(job),
        rank_program_(rank_program),
        parts_slot_(parts_slot),
        all_(parameters(job.transformer)),
        shared_(std::move(shared)) {
    for (const ShardId id : rank_program_.shards.ids())
      if (rank_program_.shards[id].gradient_part || rank_program_.shards[id].parameter_part)
        for (const TensorId parameter : rank_program_.shards[id].parameters)
          shards_of_[rank_program_.tensors[parameter].parameter.value()].push_back(id);
    for (const Block& block : rank_program_.blocks) uses_.add(uses_in(block));
    if (!job_.strategy.reshard_after_forward) gather_once();
  }

  void run() {
    cut();
    find_completions();
    const auto count = static_cast<int>(instructions().size());
    for (int i = 0; i < count; ++i) {
      if (job_.strategy.zero >= 3) gather_for(i);
      reduce_after(i);
    }
    for (auto& [index, gather] : awaited_) instructions()[at(index)].after.push_back(gather);
    for (std::size_t i = 1; i < reduced_.size(); ++i)
      if (reduced_[i].first > reduced_[i - 1].first && reduced_[i].first + 1 < count)
        instructions()[at(reduced_[i].first + 1)].after.push_back(reduced_[i - 1].second);
  }

 private:
  const Job& job_;
  RankProgram& rank_program_;
  const std::optional<GroupSlot> parts_slot_;
  const std::vector<Parameter> all_;
  const std::set<GroupSlot> shared_;
  // By parameter of the transformer: the shards, if it or its gradient is held in parts.
  std::map<int, std::vector<ShardId>> shards_of_;
  IdTable<BlockId, std::map<ShardId, Uses>> uses_;
  std::map<std::pair<int, ShardId>, int> completions_;  // index of the compute, by micro-batch and shard
  std::map<ShardId, int> last_completions_;             // index of the compute, by shard
  std::vector<int> gathered_for_;                       // computes that have a gather, in order
  std::vector<std::pair<int, After>> awaited_;
  // Reductions in order, by the compute that completed the gradients. While one is reduced the next may be computed,
  // but no more.
  std::vector<std::pair<int, After>> reduced_;

  std::vector<Instruction>& instructions() { return rank_program_.streams[kComputeStream].instructions; }
  const Compute& compute_at(int index) { return std::get<Compute>(instructions()[at(index)].body); }

  // Whether the shard's gradients are reduced with each micro-batch.
  bool reduces_each(ShardId id) const { return rank_program_.shards[id].gradient_part.has_value(); }

  const std::vector<ShardId>& shards_of(TensorId tensor) const {
    static const std::vector<ShardId> none;
    const std::optional<int> parameter = rank_program_.tensors[tensor].parameter;
    const auto shards = parameter ? shards_of_.find(*parameter) : shards_of_.end();
    return shards == shards_of_.end() ? none : shards->second;
  }

  std::map<ShardId, Uses> uses_in(const Block& block) const {
    std::map<ShardId, Uses> by_shard;
    for (std::size_t i = 0; i < block.kernels.size(); ++i) {
      const Kernel& kernel = block.kernels[i];
      for (const TensorId id : kernel.parameters)
        for (const ShardId shard : shards_of(id)) {
          Uses& uses = by_shard[shard];
          if (adds_gradients(kernel.op)) uses.last_add = static_cast<int>(i);
          if (!reads_parameters(kernel.op)) continue;
          if (!uses.first_read) uses.first_read = static_cast<int>(i);
          uses.gathered.insert(id);
        }
      for (const TensorId id : kernel.frees)
        if (rank_program_.tensors[id].role == TensorRole::gathered)
          for (const ShardId shard : shards_of(id)) by_shard[shard].gathered.insert(id);
    }
    return by_shard;
  }

  // Leaves the gathers of the first block that reads a shard, for all of its tensors.
  void gather_once() {
    std::set<ShardId> is_gathered;
    for (auto& by_shard : uses_)
      for (auto& [shard, uses] : by_shard) {
        if (!uses.first_read) continue;
        if (!is_gathered.insert(shard).second) {
          uses.first_read.reset();
          continue;
        }
        const auto& whole = rank_program_.shards[shard].parameters;
        uses.gathered = {whole.begin(), whole.end()};
      }
  }

  // Cuts the computes where a micro-batch's gradients of a shard are complete, and before kernels that read its
  // parameters.
  void cut() {
    std::map<std::pair<int, ShardId>, ComputePoint> last_additions;  // by micro-batch and shard
    std::vector<ComputePoint> points;
    const auto count = static_cast<int>(instructions().size());
    for (int i = 0; i < count; ++i)
      for (const auto& [shard, uses] : uses_[compute_at(i).block]) {
        if (uses.last_add && reduces_each(shard))
          last_additions[{instructions()[at(i)].micro_batch, shard}] = {i, *uses.last_add + 1};
        if (job_.strategy.zero >= 3 && uses.first_read && *uses.first_read > 0)
          points.push_back({i, *uses.first_read});
      }
    for (const auto& [what, point] : last_additions) points.push_back(point);
    cut_computes(rank_program_, points);
  }

  void find_completions() {
    const auto count = static_cast<int>(instructions().size());
    for (int i = 0; i < count; ++i) {
      const Compute& piece = compute_at(i);
      for (const auto& [shard, uses] : uses_[piece.block])
        if (uses.last_add && reduces_each(shard) && *uses.last_add >= piece.first_kernel &&
            *uses.last_add < piece.last_kernel)
          completions_[{instructions()[at(i)].micro_batch, shard}] = i;
    }
    for (const auto& [what, index] : completions_)
      last_completions_[what.second] = std::max(last_completions_[what.second], index);
  }

  std::int64_t bytes_of_all(const std::vector<TensorId>& ids) const {
    std::int64_t bytes = 0;
    for (const TensorId id : ids) bytes += rank_program_.tensors[id].bytes;
    return bytes;
  }

  // The gathered tensors in the order of the shard's parameters, of whose parts they are made.
  std::vector<TensorId> in_shard_order(const Shard& shard, const std::set<TensorId>& gathered) const {
    std::vector<TensorId> ids;
    for (const TensorId whole : shard.parameters)
      for (const TensorId id : gathered)
        if (rank_program_.tensors[id].parameter == rank_program_.tensors[whole].parameter) ids.push_back(id);
    return ids;
  }

  void gather_for(int index) {
    const Compute piece = compute_at(index);
    bool gathers_any = false;
    for (const auto& [id, uses] : uses_[piece.block]) {
      if (!uses.first_read || *uses.first_read < piece.first_kernel || *uses.first_read >= piece.last_kernel)
        continue;
      const Shard& shard = rank_program_.shards[id];
      Collective gather = collective_on(rank_program_, id, CollectiveKind::all_gather, shard.gather_slot);
      gather.tensors = in_shard_order(shard, uses.gathered);
      MOTLEY_CHECK(gather.tensors.size() == shard.parameters.size());
      gather.bytes = bytes_of_all(gather.tensors) / shard.parts;
      Instruction instruction;
      instruction.micro_batch = instructions()[at(index)].micro_batch;
      if (const auto before = issued_after(index)) instruction.after = {{kComputeStream, *before}};
      instruction.body = std::move(gather);
      const StreamId stream = stream_of(rank_program_, StreamKind::gather);
      auto& gathers = rank_program_.streams[stream].instructions;
      gathers.push_back(std::move(instruction));
      awaited_.push_back({index, {stream, static_cast<int>(gathers.size()) - 1}});
      gathers_any = true;
    }
    if (gathers_any) gathered_for_.push_back(index);
  }
  // The compute that must have ended before the gather for this one may begin: the last one before the use that is
  // `prefetch` uses earlier.
  std::optional<int> issued_after(int index) const {
    const auto ahead = at(job_.strategy.prefetch);
    if (ahead > gathered_for_.size()) return std::nullopt;
    const int use = ahead == 0 ? index : gathered_for_[gathered_for_.size() - ahead];
    return use > 0 ? std::optional(use - 1) : std::nullopt;
  }

  void reduce_after(int index) {
    const Compute piece = compute_at(index);
    const std::int32_t micro_batch = instructions()[at(index)].micro_batch;
    for (const auto& [id, uses] : uses_[piece.block]) {
      const auto completion = completions_.find({micro_batch, id});
      if (completion == completions_.end() || completion->second != index) continue;
      const Shard& shard = rank_program_.shards[id];
      const StreamId stream = stream_of(rank_program_, StreamKind::collective);
      auto& collectives = rank_program_.streams[stream].instructions;
      if (auto in_parts = gradients_in_parts(rank_program_, all_, shard.gradients); !in_parts.empty())
        collectives.push_back(
            sum_of_parts(rank_program_, parts_slot_.value(), std::move(in_parts), micro_batch, index));
      collectives.push_back(reduction(id, micro_batch, index));
      reduced_.push_back({index, {stream, static_cast<int>(collectives.size()) - 1}});
      // Another rank program that holds the shard reduces in another order, so models/compile/gradients.cpp reduces
      // it with the rest at the end.
      if (shard.replica_slot && !shared_.contains(shard.slot) && last_completions_.at(id) == index)
        collectives.push_back(replica_reduction(shard));
    }
  }
  Instruction reduction(ShardId id, std::int32_t micro_batch, int index) const {
    const Shard& shard = rank_program_.shards[id];
    Collective scatter = collective_on(rank_program_, id, CollectiveKind::reduce_scatter, shard.slot);
    scatter.tensors = shard.gradients;
    scatter.bytes = bytes_of_all(shard.gradients) / shard.parts;
    Instruction instruction;
    instruction.body = std::move(scatter);
    instruction.micro_batch = micro_batch;
    if (shard.part + 1 == shard.parts) instruction.frees = shard.gradients;
    instruction.after = {{kComputeStream, index}};
    return instruction;
  }
  // Sums the part that this rank holds, once it has the gradients of every micro-batch: the stream keeps that order.
  Instruction replica_reduction(const Shard& shard) const {
    Collective sum;
    sum.slot = shard.replica_slot.value();
    sum.tensors = {shard.gradient_part.value()};
    sum.bytes = rank_program_.tensors[*shard.gradient_part].bytes;
    Instruction instruction;
    instruction.body = std::move(sum);
    return instruction;
  }
};

}  // namespace

void add_shard_collectives(const Job& job, Program& program) {
  if (job.strategy.zero < 2) return;
  const auto shares = gradient_shares(job, program);
  for (const RankProgramId id : program.rank_programs.ids()) {
    if (program.rank_programs[id].shards.empty()) continue;
    std::set<GroupSlot> shared;
    for (const ShareSlot& slot : share_slots(shares, program, id))
      if (shares[slot.share].holders.size() > 1) shared.insert(slot.slot);
    const auto parts_slot = group_slot(program, id, GroupKind::tensor_gradient);
    ShardCollectives(job, program.rank_programs[id], parts_slot, std::move(shared)).run();
  }
}

}  // namespace motley
