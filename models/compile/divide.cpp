// Pass "divide": optimizer state, gradients and parameters that replicas divide among themselves (zero 1, 2, 3; ZeRO,
// arXiv:1910.02054). It decides which rank holds which tensors; models/compile/shards.cpp moves them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/base/size.hpp"
#include "models/compile/compile_passes.hpp"
#include "models/compile/gradient_shares.hpp"

namespace motley {
namespace {

// Tensors of a role, by parameter of the transformer.
std::map<int, TensorId> tensors_of(const RankProgram& rank_program, TensorRole role) {
  std::map<int, TensorId> ids;
  for (const TensorId id : rank_program.tensors.ids()) {
    const Tensor& tensor = rank_program.tensors[id];
    if (tensor.role == role && tensor.parameter) ids[*tensor.parameter] = id;
  }
  return ids;
}

std::int64_t elements_of(const Tensor& tensor) { return tensor.bytes / bytes_of(tensor.format); }

// Divides the tensors that a rank program holds throughout into shards, with tensors for this rank's parts.
class StateDivision {
 public:
  StateDivision(const Job& job, const Program& program, const IdTable<ShareId, GradientShare>& shares,
                RankProgramId id, RankProgram& rank_program)
      : job_(job),
        program_(program),
        shares_(shares),
        id_(id),
        rank_program_(rank_program),
        first_rank_(first_rank(program, id)),
        parameter_ids_(tensors_of(rank_program, TensorRole::parameter)),
        gradient_ids_(tensors_of(rank_program, TensorRole::gradient)) {}

  void add_shards() {
    const auto all = parameters(job_.transformer);
    for (const ShareSlot& slot : share_slots(shares_, program_, id_))
      if (slot.gather_slot)
        for (const auto& unit : units_of(shares_[slot.share], slot.parts, all)) add_shard(slot, unit, all);
  }

  // Removes the optimizer state of parameters that are in a shard, which has its own.
  void drop_optimizer_states() {
    std::set<int> divided;
    for (const Shard& shard : rank_program_.shards)
      for (const TensorId id : shard.parameters) divided.insert(rank_program_.tensors[id].parameter.value());
    IdTable<TensorId, TensorId> moved(rank_program_.tensors.size());  // new id of each tensor that stays
    IdTable<TensorId, Tensor> kept;
    for (const TensorId id : rank_program_.tensors.ids()) {
      const Tensor& tensor = rank_program_.tensors[id];
      if (tensor.role == TensorRole::optimizer && tensor.parameter && divided.contains(*tensor.parameter))
        continue;
      moved[id] = kept.add(tensor);
    }
    rank_program_.tensors = std::move(kept);
    const auto renumber = [&](std::vector<TensorId>& ids) {
      for (TensorId& id : ids) id = moved[id];
    };
    for (Block& block : rank_program_.blocks)
      for (Kernel& kernel : block.kernels)
        for (auto* ids : {&kernel.in, &kernel.out, &kernel.parameters, &kernel.frees}) renumber(*ids);
    for (Shard& shard : rank_program_.shards) {
      renumber(shard.parameters);
      renumber(shard.gradients);
      shard.optimizer = moved[shard.optimizer];
      for (std::optional<TensorId>* id : {&shard.parameter_part, &shard.gradient_part})
        if (*id) *id = moved[**id];
    }
  }

 private:
  const Job& job_;
  const Program& program_;
  const IdTable<ShareId, GradientShare>& shares_;
  const RankProgramId id_;
  RankProgram& rank_program_;
  const RankEntry& first_rank_;
  const std::map<int, TensorId> parameter_ids_, gradient_ids_;

  static const RankEntry& first_rank(const Program& program, RankProgramId id) {
    const auto first = std::find_if(program.ranks.begin(), program.ranks.end(),
                                    [&](const RankEntry& entry) { return entry.rank_program == id; });
    MOTLEY_CHECK(first != program.ranks.end());
    return *first;
  }
  std::optional<GroupId> group_of(GroupSlot slot) const {
    return first_rank_.groups.has(slot) ? first_rank_.groups[slot] : std::nullopt;
  }

  // Whether a parameter needs a unit of its own: a tied embedding does, because both stages that hold it reduce it
  // again with each other.
  bool stands_alone(int parameter) const {
    for (const GradientShare& share : shares_)
      if (share.kind == GroupKind::embedding &&
          std::find(share.parameters.begin(), share.parameters.end(), parameter) != share.parameters.end())
        return true;
    return false;
  }
  // The share's parameters from the last layer to the first, in units. A layer's parameters form one unit; where
  // gradients are reduced once a step, a unit takes as many layers as fill a bucket.
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
      bytes += rank_program_.tensors[gradient_ids_.at(order[i])].bytes / parts;
    }
    return units;
  }

  TensorId add_tensor(std::string name, TensorRole role, Format format, std::vector<std::int64_t> shape) {
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.role = role;
    tensor.format = format;
    tensor.shape = std::move(shape);
    tensor.bytes = bytes_of(format);
    for (std::int64_t extent : tensor.shape) tensor.bytes *= extent;
    return rank_program_.tensors.add(std::move(tensor));
  }

  // Gives a part of `part` elements of a unit its share of the state of the whole unit.
  // Assumes: replicas divide the state of a unit evenly, whatever the shapes of its parameters.
  void size_state(TensorId state, const std::vector<int>& unit, std::int64_t part,
                  const std::vector<Parameter>& all) {
    std::int64_t whole = 0, elements = 0;
    for (const int index : unit) {
      const Parameter& parameter = all[at(index)];
      const Tensor& tensor = rank_program_.tensors[parameter_ids_.at(index)];
      whole = size_sum(whole, optimizer_bytes(job_.train.optimizer_rule(),
                                              parameter.experts > 0
                                                  ? part_of_experts(parameter, rank_program_.expert_parallel)
                                                  : parameter,
                                              tensor.shape));
      elements += elements_of(tensor);
    }
    const double rest = static_cast<double>(whole % elements) / static_cast<double>(elements);
    rank_program_.tensors[state].bytes =
        whole / elements * part + static_cast<std::int64_t>(std::ceil(rest * static_cast<double>(part)));
  }

  void add_shard(const ShareSlot& slot, const std::vector<int>& unit, const std::vector<Parameter>& all) {
    Shard shard;
    const int divided = shares_[slot.share].divided;
    shard.part = slot.part;
    shard.parts = slot.parts;
    shard.slot = slot.slot;
    shard.gather_slot = slot.gather_slot.value();
    if (slot.replica_slot && group_of(*slot.replica_slot)) shard.replica_slot = slot.replica_slot;
    std::int64_t elements = 0, copies = 0;
    for (int parameter : unit) {
      copies = std::max(copies, kept_copies(job_.train.optimizer_rule(), all[at(parameter)]));
      shard.parameters.push_back(parameter_ids_.at(parameter));
      shard.gradients.push_back(gradient_ids_.at(parameter));
      elements += elements_of(rank_program_.tensors[shard.parameters.back()]) / slot.parts;
    }
    const Group& group = program_.groups[group_of(slot.slot).value()];
    const auto members = static_cast<std::int64_t>(group.ranks.size());
    const std::int64_t part = (elements + members - 1) / members;
    const Format format = job_.train.precision;
    const std::string name = fmt::format("shard {}", rank_program_.shards.size());
    shard.optimizer = add_tensor(name + ".optimizer", TensorRole::optimizer, Format::fp32, {copies, part});
    size_state(shard.optimizer, unit, part, all);
    if (divided >= 2 && job_.strategy.reduce_gradients == ReduceGradients::each)
      shard.gradient_part =
          add_tensor(name + ".gradient", TensorRole::gradient, job_.train.gradients, {part});
    if (divided >= 3) shard.parameter_part = add_tensor(name, TensorRole::parameter, format, {part});
    rank_program_.shards.add(std::move(shard));
  }
};

// Makes whole gradients and parameters, whose parts ranks hold throughout, come and go with a micro-batch.
class WholeTensors {
 public:
  WholeTensors(RankProgram& rank_program, bool reshards) : rank_program_(rank_program), reshards_(reshards) {}

  // Gradients are zeroed before the first kernel that adds to them. Blocks stand in the order in which a micro-batch
  // passes them.
  void make_gradients_whole() {
    for (const Shard& shard : rank_program_.shards) {
      if (!shard.gradient_part || shard.part > 0) continue;
      for (const TensorId id : shard.gradients) rank_program_.tensors[id].role = TensorRole::whole_gradient;
      clear_before_use(shard);
    }
  }

  // There is one tensor for each parameter and block: each block gathers and frees its own. Where forwards do not
  // reshard, there is one for all blocks: the first gathers it, the last frees it.
  void gather_parameters() {
    for (const Shard& shard : rank_program_.shards) {
      if (!shard.parameter_part || shard.part > 0) continue;
      for (const TensorId id : shard.parameters) rank_program_.tensors[id].role = TensorRole::gathered;
      bool first = true;
      Kernel* last_reader = nullptr;
      std::set<TensorId> unread;
      for (Block& block : rank_program_.blocks) {
        if (std::none_of(block.kernels.begin(), block.kernels.end(), [&](const Kernel& kernel) {
              return reads_parameters(kernel.op) && names(kernel, shard);
            }))
          continue;  // a shard whose parameters no kernel of the block reads is not gathered
        const std::vector<TensorId> gathered =
            first || !reshards_ ? shard.parameters : copies_of(shard, block.name);
        if (first || reshards_) unread = {gathered.begin(), gathered.end()};
        last_reader = gather_in(block, shard, gathered, unread);
        if (reshards_) free_with(*last_reader, unread);
        first = false;
      }
      if (!reshards_ && last_reader != nullptr) free_with(*last_reader, unread);
    }
  }

 private:
  RankProgram& rank_program_;
  const bool reshards_;

  bool names(const Kernel& kernel, const Shard& shard) const {
    for (const TensorId named : kernel.parameters)
      for (const TensorId id : shard.parameters)
        if (rank_program_.tensors[named].parameter == rank_program_.tensors[id].parameter) return true;
    return false;
  }
  void clear_before_use(const Shard& shard) {
    for (Block& block : rank_program_.blocks)
      for (std::size_t i = 0; i < block.kernels.size(); ++i) {
        if (!adds_gradients(block.kernels[i].op) || !names(block.kernels[i], shard)) continue;
        std::vector<Kernel> clears;
        for (const TensorId id : shard.gradients) {
          Kernel clear;
          clear.op = KernelOp::clear;
          clear.layer = block.kernels[i].layer;
          clear.out = {id};
          clear.n = elements_of(rank_program_.tensors[id]);
          clear.bytes = rank_program_.tensors[id].bytes;
          clears.push_back(std::move(clear));
        }
        block.kernels.insert(block.kernels.begin() + static_cast<std::ptrdiff_t>(i), clears.begin(),
                             clears.end());
        return;
      }
  }

  std::vector<TensorId> copies_of(const Shard& shard, const std::string& block) {
    std::vector<TensorId> copies;
    for (const TensorId id : shard.parameters) {
      Tensor again = rank_program_.tensors[id];
      again.name += " for " + block;
      copies.push_back(rank_program_.tensors.add(std::move(again)));
    }
    return copies;
  }
  // All tensors of a shard are gathered together. Returns the last kernel of the block that reads one; tensors that
  // nobody reads are freed there. Takes what the block reads from `unread`.
  Kernel* gather_in(Block& block, const Shard& shard, const std::vector<TensorId>& gathered,
                    std::set<TensorId>& unread) {
    Kernel* last_reader = nullptr;
    for (Kernel& kernel : block.kernels)
      for (TensorId& named : kernel.parameters)
        for (std::size_t i = 0; i < gathered.size(); ++i) {
          if (named != shard.parameters[i]) continue;
          named = gathered[i];
          if (!reads_parameters(kernel.op)) break;
          last_reader = &kernel;
          unread.erase(named);
          break;
        }
    return last_reader;
  }
  static void free_with(Kernel& reader, const std::set<TensorId>& unread) {
    reader.frees.insert(reader.frees.end(), unread.begin(), unread.end());
  }
};

std::int64_t held_bytes(const RankProgram& rank_program) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : rank_program.tensors)
    if (!per_micro_batch(tensor.role)) bytes += tensor.bytes;
  return bytes;
}

}  // namespace

void divide_state(const Job& job, Program& program) {
  if (job.strategy.zero == 0) return;
  const auto shares = gradient_shares(job, program);
  for (const RankProgramId id : program.rank_programs.ids()) {
    RankProgram& rank_program = program.rank_programs[id];
    StateDivision division(job, program, shares, id, rank_program);
    division.add_shards();
    if (rank_program.shards.empty()) continue;
    division.drop_optimizer_states();
    WholeTensors whole(rank_program, job.strategy.reshard_after_forward);
    whole.make_gradients_whole();
    whole.gather_parameters();
    rank_program.static_bytes = held_bytes(rank_program);
  }
}

}  // namespace motley
