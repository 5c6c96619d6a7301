// Passes "divide" and "shards": what replicas divide among them instead of each holding it whole (ZeRO,
// arXiv:1910.02054). The first decides who holds which tensors; the second gathers parameters before each use of a
// layer and reduces gradients after each micro-batch's backward, where the strategy divides those. What is reduced once
// a step is compile_gradients.cpp's.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "models/compile_passes.hpp"
#include "models/gradient_shares.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// By parameter of the transformer.
std::map<int, int> tensors_of(const ProgramClass& of_class, TensorRole role) {
  std::map<int, int> ids;
  for (std::size_t i = 0; i < of_class.tensors.size(); ++i)
    if (of_class.tensors[i].role == role && of_class.tensors[i].parameter >= 0)
      ids[of_class.tensors[i].parameter] = static_cast<int>(i);
  return ids;
}

std::int64_t elements_of(const Tensor& tensor) { return tensor.bytes / bytes_of(tensor.format); }

class Divider {
 public:
  Divider(const Job& job, const Program& program, const std::vector<GradientShare>& shares, int index,
          ProgramClass& of_class)
      : job_(job), program_(program), shares_(shares), index_(index), class_(of_class) {}

  void run() {
    find_ranks();
    parameter_ids_ = tensors_of(class_, TensorRole::parameter);
    gradient_ids_ = tensors_of(class_, TensorRole::gradient);
    const auto all = parameters(job_.transformer);
    for (const ShareSlot& slot : share_slots(shares_, program_, index_))
      if (slot.gather_slot >= 0)
        for (const auto& unit : units_of(shares_[at(slot.share)], slot.parts, all)) add_shard(slot, unit);
    if (class_.shards.empty()) return;
    drop_optimizer_states();
    make_gradients_whole();
    gather_parameters();
    class_.static_bytes = 0;
    for (const Tensor& tensor : class_.tensors)
      if (!per_micro_batch(tensor.role)) class_.static_bytes += tensor.bytes;
  }

 private:
  const Job& job_;
  const Program& program_;
  const std::vector<GradientShare>& shares_;
  const int index_;
  ProgramClass& class_;
  const RankEntry* first_rank_ = nullptr;
  std::map<int, int> parameter_ids_, gradient_ids_;

  void find_ranks() {
    for (const RankEntry& entry : program_.ranks)
      if (entry.of_class == index_ && first_rank_ == nullptr) first_rank_ = &entry;
    MOTLEY_CHECK(first_rank_ != nullptr);
  }
  int group_of(int slot) const {
    return slot < 0 || at(slot) >= first_rank_->groups.size() ? -1 : first_rank_->groups[at(slot)];
  }

  // Both stages that hold a tied embedding reduce it again with each other, so it stands alone.
  bool stands_alone(int parameter) const {
    for (const GradientShare& share : shares_)
      if (share.kind == GroupKind::embedding &&
          std::find(share.parameters.begin(), share.parameters.end(), parameter) != share.parameters.end())
        return true;
    return false;
  }
  // From the last layer to the first. Those of a layer go together; where gradients are reduced once a step, those of
  // as many layers as fill a bucket.
  std::vector<std::vector<int>> units_of(const GradientShare& share, std::int64_t parts,
                                         const std::vector<Parameter>& all) const {
    std::vector<int> order(share.parameters.begin(), share.parameters.end());
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return all[at(a)].layer > all[at(b)].layer; });
    const bool in_buckets = job_.strategy.overlap_gradients || job_.strategy.overlap_parameters;
    const std::int64_t enough = share.divided >= 2 ? 1 : in_buckets ? job_.strategy.bucket_bytes : INT64_MAX;
    std::vector<std::vector<int>> units;
    std::int64_t bytes = enough;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const bool same_layer = i > 0 && all[at(order[i])].layer == all[at(order[i - 1])].layer;
      const bool alone = stands_alone(order[i]) || (i > 0 && stands_alone(order[i - 1]));
      if (i == 0 || alone || (!same_layer && bytes >= enough)) {
        units.emplace_back();
        bytes = 0;
      }
      units.back().push_back(order[i]);
      bytes += class_.tensors[at(gradient_ids_.at(order[i]))].bytes / parts;
    }
    return units;
  }

  int add_tensor(std::string name, TensorRole role, Format format, std::vector<std::int64_t> shape) {
    Tensor tensor{std::move(name), role, format, std::move(shape), bytes_of(format), -1};
    for (std::int64_t extent : tensor.shape) tensor.bytes *= extent;
    class_.tensors.push_back(std::move(tensor));
    return static_cast<int>(class_.tensors.size()) - 1;
  }

  void add_shard(const ShareSlot& slot, const std::vector<int>& unit) {
    Shard shard;
    const int divided = shares_[at(slot.share)].divided;
    shard.part = slot.part;
    shard.parts = slot.parts;
    shard.slot = slot.slot;
    shard.gather_slot = slot.gather_slot;
    if (group_of(slot.replica_slot) >= 0) shard.replica_slot = slot.replica_slot;
    std::int64_t elements = 0;
    for (int parameter : unit) {
      shard.parameters.push_back(parameter_ids_.at(parameter));
      shard.gradients.push_back(gradient_ids_.at(parameter));
      elements += elements_of(class_.tensors[at(shard.parameters.back())]) / slot.parts;
    }
    const auto members = static_cast<std::int64_t>(program_.groups[at(group_of(slot.slot))].ranks.size());
    const std::int64_t part = (elements + members - 1) / members;
    const Format format = job_.train.precision;
    const std::string name = fmt::format("shard {}", class_.shards.size());
    shard.optimizer = add_tensor(name + ".optimizer", TensorRole::optimizer, Format::fp32,
                                 {bytes_of(format) < 4 ? 3 : 2, part});
    if (divided >= 2)
      shard.gradient_part =
          add_tensor(name + ".gradient", TensorRole::gradient, job_.train.gradients, {part});
    if (divided >= 3) shard.parameter_part = add_tensor(name, TensorRole::parameter, format, {part});
    class_.shards.push_back(std::move(shard));
  }

  // Of the parameters that are in a shard, which has its own.
  void drop_optimizer_states() {
    std::set<int> divided;
    for (const Shard& shard : class_.shards)
      for (int id : shard.parameters) divided.insert(class_.tensors[at(id)].parameter);
    std::vector<std::int32_t> moved(class_.tensors.size(), -1);
    std::vector<Tensor> kept;
    for (std::size_t i = 0; i < class_.tensors.size(); ++i) {
      const Tensor& tensor = class_.tensors[i];
      if (tensor.role == TensorRole::optimizer && divided.contains(tensor.parameter)) continue;
      moved[i] = static_cast<std::int32_t>(kept.size());
      kept.push_back(tensor);
    }
    class_.tensors = std::move(kept);
    const auto renumber = [&](std::vector<std::int32_t>& ids) {
      for (std::int32_t& id : ids) id = moved[at(id)];
    };
    for (Block& block : class_.blocks)
      for (Kernel& kernel : block.kernels)
        for (auto* ids : {&kernel.in, &kernel.out, &kernel.parameters, &kernel.frees}) renumber(*ids);
    for (Shard& shard : class_.shards) {
      renumber(shard.parameters);
      renumber(shard.gradients);
      for (std::int32_t* id : {&shard.optimizer, &shard.parameter_part, &shard.gradient_part})
        if (*id >= 0) *id = moved[at(*id)];
    }
  }

  bool adds_to(const Kernel& kernel, const Shard& shard) const {
    return adds_gradients(kernel.op) && names(kernel, shard);
  }
  bool names(const Kernel& kernel, const Shard& shard) const {
    for (int named : kernel.parameters)
      for (int id : shard.parameters)
        if (class_.tensors[at(named)].parameter == class_.tensors[at(id)].parameter) return true;
    return false;
  }

  // Zeroed before the first kernel that adds to them: blocks stand in the order in which a micro-batch passes them.
  void make_gradients_whole() {
    for (const Shard& shard : class_.shards) {
      if (shard.gradient_part < 0 || shard.part > 0) continue;
      for (int id : shard.gradients) class_.tensors[at(id)].role = TensorRole::whole_gradient;
      clear_before_use(shard);
    }
  }
  void clear_before_use(const Shard& shard) {
    for (Block& block : class_.blocks)
      for (std::size_t i = 0; i < block.kernels.size(); ++i) {
        if (!adds_to(block.kernels[i], shard)) continue;
        std::vector<Kernel> clears;
        for (int id : shard.gradients) {
          Kernel clear;
          clear.op = KernelOp::clear;
          clear.layer = block.kernels[i].layer;
          clear.out = {id};
          clear.n = elements_of(class_.tensors[at(id)]);
          clear.bytes = class_.tensors[at(id)].bytes;
          clears.push_back(std::move(clear));
        }
        block.kernels.insert(block.kernels.begin() + static_cast<std::ptrdiff_t>(i), clears.begin(),
                             clears.end());
        return;
      }
  }

  // One tensor a parameter and block: each block's is gathered and freed anew.
  void gather_parameters() {
    for (const Shard& shard : class_.shards) {
      if (shard.parameter_part < 0 || shard.part > 0) continue;
      for (int id : shard.parameters) class_.tensors[at(id)].role = TensorRole::gathered;
      bool first = true;
      for (Block& block : class_.blocks) {
        if (std::none_of(block.kernels.begin(), block.kernels.end(), [&](const Kernel& kernel) {
              return reads_parameters(kernel.op) && names(kernel, shard);
            }))
          continue;  // what is only named there is not touched
        gather_in(block, shard, first ? shard.parameters : copies_of(shard, block.name));
        first = false;
      }
    }
  }
  std::vector<std::int32_t> copies_of(const Shard& shard, const std::string& block) {
    std::vector<std::int32_t> copies;
    for (int id : shard.parameters) {
      Tensor again = class_.tensors[at(id)];
      again.name += " for " + block;
      class_.tensors.push_back(std::move(again));
      copies.push_back(static_cast<std::int32_t>(class_.tensors.size()) - 1);
    }
    return copies;
  }
  // All of a shard is gathered together; what the block does not read goes with the last that it does.
  void gather_in(Block& block, const Shard& shard, const std::vector<std::int32_t>& mine) {
    Kernel* last_reader = nullptr;
    std::set<std::int32_t> unread(mine.begin(), mine.end());
    for (Kernel& kernel : block.kernels)
      for (std::int32_t& named : kernel.parameters)
        for (std::size_t i = 0; i < mine.size(); ++i) {
          if (named != shard.parameters[i]) continue;
          named = mine[i];
          if (!reads_parameters(kernel.op)) break;
          last_reader = &kernel;
          unread.erase(named);
          break;
        }
    if (last_reader != nullptr)
      last_reader->frees.insert(last_reader->frees.end(), unread.begin(), unread.end());
  }
};

// What a compute does to a shard: the first kernel that reads its parameters, the last that adds to its gradients.
struct Uses {
  int first_read = -1, last_add = -1;
  std::set<std::int32_t> gathered;  // tensors
};

class Sharder {
 public:
  // `shared`: slots of what other classes hold too.
  Sharder(const Job& job, ProgramClass& of_class, int parts_slot, std::set<int> shared)
      : job_(job),
        class_(of_class),
        parts_slot_(parts_slot),
        all_(parameters(job.transformer)),
        shared_(std::move(shared)) {
    for (std::size_t s = 0; s < class_.shards.size(); ++s)
      if (class_.shards[s].gradient_part >= 0)
        for (int id : class_.shards[s].parameters)
          shards_of_[class_.tensors[at(id)].parameter].push_back(static_cast<int>(s));
    for (const Block& block : class_.blocks) uses_.push_back(uses_in(block));
  }

  void run() {
    find_completions();
    cut();
    for (std::size_t i = 0; i < computes().size(); ++i) {
      if (job_.strategy.zero >= 3) gather_for(static_cast<int>(i));
      reduce_after(static_cast<int>(i));
    }
    for (auto& [index, gather] : awaited_) computes()[at(index)].after.push_back(gather);
    for (std::size_t i = 1; i < reduced_.size(); ++i)
      if (reduced_[i].first > reduced_[i - 1].first && at(reduced_[i].first + 1) < computes().size())
        computes()[at(reduced_[i].first + 1)].after.push_back(reduced_[i - 1].second);
  }

 private:
  const Job& job_;
  ProgramClass& class_;
  const int parts_slot_;  // of the group over which parts of gradients are summed
  const std::vector<Parameter> all_;
  const std::set<int> shared_;
  // By parameter of the transformer, where its gradient is held in parts.
  std::map<int, std::vector<int>> shards_of_;
  std::vector<std::map<int, Uses>> uses_;  // by block, by shard
  std::map<std::pair<int, int>, std::pair<int, int>>
      completions_;                      // (micro-batch, shard): instruction, kernel
  std::map<int, int> last_completions_;  // by shard: the instruction
  std::vector<int> gathered_for_;        // computes that a gather was made for, in order
  std::vector<std::pair<int, After>> awaited_;
  // In order, by the compute that completed it: while one is reduced the next is computed, and no more.
  std::vector<std::pair<int, After>> reduced_;

  std::vector<Instruction>& computes() { return class_.streams[0].instructions; }

  const std::vector<int>& shards_of(int tensor) const {
    static const std::vector<int> none;
    const auto found = shards_of_.find(class_.tensors[at(tensor)].parameter);
    return found == shards_of_.end() ? none : found->second;
  }

  std::map<int, Uses> uses_in(const Block& block) const {
    std::map<int, Uses> uses;
    for (std::size_t i = 0; i < block.kernels.size(); ++i) {
      const Kernel& kernel = block.kernels[i];
      for (int id : kernel.parameters)
        for (int shard : shards_of(id)) {
          Uses& of = uses[shard];
          if (adds_gradients(kernel.op)) of.last_add = static_cast<int>(i);
          if (!reads_parameters(kernel.op)) continue;
          if (of.first_read < 0) of.first_read = static_cast<int>(i);
          of.gathered.insert(id);
        }
      for (int id : kernel.frees)
        if (class_.tensors[at(id)].role == TensorRole::gathered)
          for (int shard : shards_of(id)) uses[shard].gathered.insert(id);
    }
    return uses;
  }

  void find_completions() {
    for (std::size_t i = 0; i < computes().size(); ++i) {
      const Instruction& compute = computes()[i];
      for (const auto& [shard, uses] : uses_[at(compute.block)])
        if (uses.last_add >= 0)
          completions_[{compute.micro_batch, shard}] = {static_cast<int>(i), uses.last_add};
    }
  }

  void cut() {
    std::vector<ComputePoint> points;
    for (const auto& [what, where] : completions_) points.push_back({where.first, where.second + 1});
    for (std::size_t i = 0; job_.strategy.zero >= 3 && i < computes().size(); ++i)
      for (const auto& [shard, uses] : uses_[at(computes()[i].block)])
        if (uses.first_read > 0) points.push_back({static_cast<int>(i), uses.first_read});
    cut_computes(class_, points);
    completions_.clear();
    for (std::size_t i = 0; i < computes().size(); ++i) {
      const Instruction& piece = computes()[i];
      for (const auto& [shard, uses] : uses_[at(piece.block)])
        if (uses.last_add >= piece.first_kernel && uses.last_add < piece.last_kernel)
          completions_[{piece.micro_batch, shard}] = {static_cast<int>(i), uses.last_add};
    }
    for (const auto& [what, where] : completions_)
      last_completions_[what.second] = std::max(last_completions_[what.second], where.first);
  }

  std::int64_t bytes_of_all(const std::vector<std::int32_t>& ids) const {
    std::int64_t bytes = 0;
    for (int id : ids) bytes += class_.tensors[at(id)].bytes;
    return bytes;
  }

  // In the order of the shard's parameters, whose parts they are made of.
  std::vector<std::int32_t> in_shard_order(const Shard& shard, const std::set<std::int32_t>& gathered) const {
    std::vector<std::int32_t> ids;
    for (int whole : shard.parameters)
      for (int id : gathered)
        if (class_.tensors[at(id)].parameter == class_.tensors[at(whole)].parameter) ids.push_back(id);
    return ids;
  }

  void gather_for(int index) {
    const Instruction piece = computes()[at(index)];
    bool made = false;
    for (const auto& [s, uses] : uses_[at(piece.block)]) {
      if (uses.first_read < piece.first_kernel || uses.first_read >= piece.last_kernel) continue;
      const Shard& shard = class_.shards[at(s)];
      Instruction gather;
      gather.op = Op::collective;
      gather.collective = CollectiveKind::all_gather;
      gather.micro_batch = piece.micro_batch;
      gather.slot = shard.gather_slot;
      gather.shard = s;
      gather.part = shard.part;
      gather.parts = shard.parts;
      gather.tensors = in_shard_order(shard, uses.gathered);
      MOTLEY_CHECK(gather.tensors.size() == shard.parameters.size());
      gather.bytes = bytes_of_all(gather.tensors) / shard.parts;
      if (const int before = issued_after(index); before >= 0) gather.after = {{0, before}};
      const int stream = stream_of(class_, StreamKind::gather);
      auto& gathers = class_.streams[at(stream)].instructions;
      gathers.push_back(std::move(gather));
      awaited_.push_back({index, {static_cast<std::int16_t>(stream), static_cast<int>(gathers.size()) - 1}});
      made = true;
    }
    if (made) gathered_for_.push_back(index);
  }
  // The compute that must have ended before the gather for this one may begin: the last before the use that stands
  // `prefetch` uses ahead. -1: none.
  int issued_after(int index) const {
    const auto ahead = at(job_.strategy.prefetch);
    if (ahead == 0) return index - 1;
    if (gathered_for_.size() < ahead) return -1;
    return gathered_for_[gathered_for_.size() - ahead] - 1;
  }

  void reduce_after(int index) {
    const Instruction piece = computes()[at(index)];
    for (const auto& [s, uses] : uses_[at(piece.block)]) {
      const auto found = completions_.find({piece.micro_batch, s});
      if (found == completions_.end() || found->second.first != index) continue;
      const Shard& shard = class_.shards[at(s)];
      Instruction reduction;
      reduction.op = Op::collective;
      reduction.collective = CollectiveKind::reduce_scatter;
      reduction.micro_batch = piece.micro_batch;
      reduction.slot = shard.slot;
      reduction.shard = s;
      reduction.part = shard.part;
      reduction.parts = shard.parts;
      reduction.tensors = shard.gradients;
      if (shard.part + 1 == shard.parts) reduction.frees = shard.gradients;
      reduction.bytes = bytes_of_all(shard.gradients) / shard.parts;
      reduction.after = {{0, index}};
      const int stream = stream_of(class_, StreamKind::collective);
      auto& collectives = class_.streams[at(stream)].instructions;
      if (auto in_parts = gradients_in_parts(class_, all_, shard.gradients); !in_parts.empty())
        collectives.push_back(
            sum_of_parts(class_, parts_slot_, std::move(in_parts), piece.micro_batch, index));
      collectives.push_back(std::move(reduction));
      reduced_.push_back(
          {index, {static_cast<std::int16_t>(stream), static_cast<int>(collectives.size()) - 1}});
      // Who holds it in another class reduces in another order: with the rest, at the end (compile_gradients.cpp).
      if (shard.replica_slot >= 0 && !shared_.contains(shard.slot) && last_completions_.at(s) == index)
        collectives.push_back(replica_reduction(shard));
    }
  }
  // Of the part that this rank holds, when every micro-batch's is in it: the stream keeps the order.
  Instruction replica_reduction(const Shard& shard) const {
    Instruction reduction;
    reduction.op = Op::collective;
    reduction.slot = shard.replica_slot;
    reduction.tensors = {shard.gradient_part};
    reduction.bytes = class_.tensors[at(shard.gradient_part)].bytes;
    return reduction;
  }
};

}  // namespace

void divide_state(const Job& job, Program& program) {
  if (job.strategy.zero == 0) return;
  const auto shares = gradient_shares(job, program);
  for (std::size_t i = 0; i < program.classes.size(); ++i)
    Divider(job, program, shares, static_cast<int>(i), program.classes[i]).run();
}

void add_shard_collectives(const Job& job, Program& program) {
  if (job.strategy.zero < 2) return;
  const auto shares = gradient_shares(job, program);
  for (std::size_t i = 0; i < program.classes.size(); ++i) {
    if (program.classes[i].shards.empty()) continue;
    std::set<int> shared;
    for (const ShareSlot& slot : share_slots(shares, program, static_cast<std::int32_t>(i)))
      if (shares[at(slot.share)].holders.size() > 1) shared.insert(slot.slot);
    const int parts_slot = group_slot(program, static_cast<std::int32_t>(i), GroupKind::tensor_gradient);
    Sharder(job, program.classes[i], parts_slot, std::move(shared)).run();
  }
}

}  // namespace motley
