// Pass "gradients": the gradients are summed over all ranks that hold the parameter: by one all-reduce for each share
// after the last backward, or bucket by bucket during it. Tied embeddings are then summed over the first and last
// stage.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <variant>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile_passes.hpp"
#include "models/compile/gradient_shares.hpp"

namespace motley {
namespace {

using Point = ComputePoint;

constexpr int kAfterAllLayers = -2;  // smaller than any layer number, also than the embedding's -1

struct Bucket {
  int layer = 0;   // the last layer whose gradients are in it; all members order their buckets by it
  Point complete;  // the point where its gradients are complete
  std::vector<TensorId> gradients;
  std::int64_t bytes = 0;
};

const std::vector<Instruction>& computes_of(const RankProgram& rank_program) {
  return rank_program.streams[kComputeStream].instructions;
}
const Compute& compute_at(const RankProgram& rank_program, int index) {
  return std::get<Compute>(computes_of(rank_program)[at(index)].body);
}

// The gradient tensor of each parameter that the rank program holds.
std::map<int, TensorId> gradients_of(const RankProgram& rank_program) {
  std::map<int, TensorId> gradients;
  for (const TensorId id : rank_program.tensors.ids()) {
    const Tensor& tensor = rank_program.tensors[id];
    if (tensor.role == TensorRole::gradient && tensor.parameter) gradients[*tensor.parameter] = id;
  }
  return gradients;
}

const std::vector<Kernel>& kernels_at(const RankProgram& rank_program, int index) {
  return rank_program.blocks[compute_at(rank_program, index).block].kernels;
}

// The point where each parameter's gradient is complete: after the last kernel of a backward that names the
// parameter. That kernel adds to the gradient or only reads the weight, which delays completion but is not wrong.
// Only a block's last run counts.
std::map<int, Point> completions_of(const RankProgram& rank_program) {
  std::map<std::pair<BlockId, int>, int> last_run;  // by block and first kernel, because the block may be cut
  const auto count = static_cast<int>(computes_of(rank_program).size());
  for (int i = 0; i < count; ++i) {
    const Compute& compute = compute_at(rank_program, i);
    last_run[{compute.block, compute.first_kernel}] = i;
  }
  std::map<int, Point> completions;
  for (const auto& [piece, index] : last_run) {
    const Compute& compute = compute_at(rank_program, index);
    const Block& block = rank_program.blocks[compute.block];
    if (block.pass == Pass::forward) continue;
    for (int i = compute.first_kernel; i < compute.last_kernel; ++i)
      for (const TensorId tensor : block.kernels[at(i)].parameters) {
        Point& complete = completions[rank_program.tensors[tensor].parameter.value()];
        complete = std::max(complete, Point{index, i + 1});
      }
  }
  return completions;
}

int layer_at(const RankProgram& rank_program, const Point& point) {
  return kernels_at(rank_program, point.index)[at(point.kernels - 1)].layer;
}

// The end of the point's layer, in the same compute.
Point end_of_layer(const RankProgram& rank_program, Point point) {
  const auto& kernels = kernels_at(rank_program, point.index);
  const int layer = layer_at(rank_program, point);
  const int last = compute_at(rank_program, point.index).last_kernel;
  while (point.kernels < last && kernels[at(point.kernels)].layer == layer) ++point.kernels;
  return point;
}

// The share's gradients in buckets, from the last layer to the first, the order in which backwards complete them. A
// bucket closes at the end of a layer once its reduced part has bucket_bytes. The buckets are equal for all members
// of the share's groups.
std::vector<Bucket> buckets_of(const RankProgram& rank_program, const GradientShare& share,
                               std::int32_t parts, std::int64_t bucket_bytes) {
  const auto gradient = gradients_of(rank_program);
  const auto completions = completions_of(rank_program);
  struct Entry {
    int layer;
    Point complete;
    int parameter;
  };
  std::vector<Entry> order;
  for (std::int32_t parameter : share.parameters) {
    const Point complete = completions.at(parameter);
    order.push_back({layer_at(rank_program, complete), complete, parameter});
  }
  std::stable_sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
    return a.layer != b.layer ? a.layer > b.layer : a.complete < b.complete;
  });
  std::vector<Bucket> buckets;
  Bucket open;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const TensorId id = gradient.at(order[i].parameter);
    open.gradients.push_back(id);
    open.bytes += rank_program.tensors[id].bytes / parts;
    open.layer = order[i].layer;
    open.complete = std::max(open.complete, end_of_layer(rank_program, order[i].complete));
    const bool last = i + 1 == order.size();
    if (!last && (order[i + 1].layer == open.layer || open.bytes < bucket_bytes)) continue;
    buckets.push_back(open);
    open = {};
  }
  return buckets;
}

Collective reduction(const ShareSlot& slot, const Bucket& bucket) {
  Collective sum;
  sum.slot = slot.slot;
  sum.tensors = bucket.gradients;
  sum.part = slot.part;
  sum.parts = slot.parts;
  sum.scale = slot.scale;
  sum.bytes = bucket.bytes;
  return sum;
}

struct Due {
  ShareSlot slot;
  Bucket bucket;
  bool is_embedding = false;
  std::optional<ShardId> shard;
  // True: each micro-batch's gradients were already reduced to the part that is held. Only the copies of that part in
  // other rank programs are summed at the end.
  bool is_part_held = false;
};

// Leaves this rank's part of the shard's gradients in the bucket.
void use_part(const RankProgram& rank_program, const Shard& shard, Bucket& bucket) {
  const Format format = rank_program.tensors[shard.gradients[0]].format;
  bucket.bytes = rank_program.tensors[shard.optimizer].shape[1] * bytes_of(format);
  bucket.gradients = shard.gradients;
  if (shard.gradient_part) bucket.gradients = {*shard.gradient_part};
}

// The bytes of a shard that are reduced: the whole gradients, or this rank's part of them.
// `completions`: completions_of() the rank program, which takes as long as all its computes.
Bucket bucket_of(const RankProgram& rank_program, const std::map<int, Point>& completions, const Shard& shard,
                 bool whole) {
  Bucket bucket;
  for (const TensorId id : shard.gradients) {
    const Tensor& gradient = rank_program.tensors[id];
    const Point complete = completions.at(gradient.parameter.value());
    bucket.layer = layer_at(rank_program, complete);
    bucket.complete = std::max(bucket.complete, end_of_layer(rank_program, complete));
    bucket.bytes += gradient.bytes / shard.parts;
  }
  bucket.gradients = shard.gradients;
  if (!whole) use_part(rank_program, shard, bucket);
  return bucket;
}

std::optional<ShardId> shard_with(const RankProgram& rank_program, int parameter) {
  for (const ShardId id : rank_program.shards.ids())
    for (const TensorId gradient : rank_program.shards[id].gradients)
      if (rank_program.tensors[gradient].parameter == parameter) return id;
  return std::nullopt;
}

// Adds the shards that are reduced once a step. Where gradients are held in parts, each micro-batch is reduced
// (models/compile/shards.cpp), and only the sum over other rank programs that hold the same parts is left.
void add_due_of_shards(const RankProgram& rank_program, const ShareSlot& slot, const GradientShare& share,
                       std::vector<Due>& due) {
  const auto completions = completions_of(rank_program);
  for (const ShardId id : rank_program.shards.ids()) {
    const Shard& shard = rank_program.shards[id];
    const bool is_part_held = shard.gradient_part.has_value();
    if (shard.slot != slot.slot) continue;
    if (is_part_held && (!shard.replica_slot || share.holders.size() == 1)) continue;
    Due each{slot, bucket_of(rank_program, completions, shard, !is_part_held), false, id, is_part_held};
    if (share.last) each.bucket.layer = kAfterAllLayers;
    due.push_back(std::move(each));
  }
}

std::vector<Due> reductions_of(const Job& job, const IdTable<ShareId, GradientShare>& shares,
                               const std::vector<ShareSlot>& slots, const RankProgram& rank_program) {
  const std::int64_t bucket_bytes = job.strategy.overlap_gradients ? job.strategy.bucket_bytes : INT64_MAX;
  std::vector<Due> due;
  for (const ShareSlot& slot : slots) {
    const GradientShare& share = shares[slot.share];
    if (slot.gather_slot) {
      add_due_of_shards(rank_program, slot, share, due);
      continue;
    }
    const bool is_embedding = share.kind == GroupKind::embedding;
    const auto shard = is_embedding ? shard_with(rank_program, share.parameters[0]) : std::nullopt;
    if (shard) {
      due.push_back(
          {slot, bucket_of(rank_program, completions_of(rank_program), rank_program.shards[*shard], false),
           true, shard, false});
      continue;
    }
    for (Bucket& bucket : buckets_of(rank_program, share, slot.parts, bucket_bytes)) {
      if (share.last) bucket.layer = kAfterAllLayers;
      due.push_back({slot, std::move(bucket), is_embedding, std::nullopt, false});
    }
  }
  std::stable_sort(due.begin(), due.end(), [](const Due& a, const Due& b) {
    if (a.is_embedding != b.is_embedding) return b.is_embedding;
    if (a.bucket.layer != b.bucket.layer) return a.bucket.layer > b.bucket.layer;
    return a.slot.share < b.slot.share;
  });
  return due;
}

// All reductions of a bucket: the members of a shard's group reduce it to the sum of their parts, and then the ranks
// that hold the same part sum that.
std::vector<Instruction> instructions_of(const RankProgram& rank_program, const Due& due, int after) {
  std::vector<Instruction> instructions;
  const auto add = [&](Collective collective) {
    Instruction& instruction = instructions.emplace_back();
    instruction.body = std::move(collective);
    instruction.after = {{kComputeStream, after}};
  };
  if (!due.shard) {
    add(reduction(due.slot, due.bucket));
    return instructions;
  }
  const Shard& shard = rank_program.shards[*due.shard];
  if (!due.is_embedding && !due.is_part_held) {
    Collective scatter = reduction(due.slot, due.bucket);
    scatter.kind = CollectiveKind::reduce_scatter;
    scatter.shard = due.shard;
    add(std::move(scatter));
  }
  if (due.is_embedding || shard.replica_slot) {
    ShareSlot copies = due.slot;
    if (!due.is_embedding) {  // the part is already weighted and cut
      copies = {};
      copies.slot = *shard.replica_slot;
    }
    Bucket part;
    use_part(rank_program, shard, part);
    Collective sum = reduction(copies, part);
    if (!shard.gradient_part) sum.shard = due.shard;
    add(std::move(sum));
  }
  return instructions;
}

// Gradients of which each rank has a part of the sum, and that are summed once a step. Others are summed with each
// micro-batch (models/compile/shards.cpp).
std::vector<TensorId> held_gradients_in_parts(const RankProgram& rank_program,
                                              const std::vector<Parameter>& all) {
  std::vector<TensorId> held;
  for (const auto& [parameter, gradient] : gradients_of(rank_program)) held.push_back(gradient);
  return gradients_in_parts(rank_program, all, held);
}

// Removes from `from` those of `gradients` that it has, and returns them.
std::vector<TensorId> taken_from(std::vector<TensorId>& from, const std::vector<TensorId>& gradients) {
  std::vector<TensorId> taken;
  for (const TensorId id : gradients)
    if (std::erase(from, id) > 0) taken.push_back(id);
  return taken;
}

// `parts_slot` is the group that sums gradients of which each rank has a part; it is set if there are any.
void add_reductions(const Job& job, RankProgram& rank_program, const std::vector<Due>& due,
                    std::optional<GroupSlot> parts_slot, const std::vector<Parameter>& all) {
  std::vector<TensorId> in_parts = held_gradients_in_parts(rank_program, all);
  if (due.empty() && in_parts.empty()) return;
  const auto is_early = [&](const Due& each) {
    return job.strategy.overlap_gradients && !each.is_embedding && !each.is_part_held;
  };
  std::vector<Point> points;
  for (const Due& each : due)
    if (is_early(each)) points.push_back(each.bucket.complete);
  const auto ends = cut_computes(rank_program, points);
  const int last = static_cast<int>(computes_of(rank_program).size()) - 1;
  const StreamId stream = stream_of(rank_program, StreamKind::collective);
  auto& collectives = rank_program.streams[stream].instructions;
  for (const Due& each : due) {
    const int after = is_early(each) ? ends.at(each.bucket.complete) : last;
    if (auto parts = taken_from(in_parts, each.bucket.gradients); !parts.empty())
      collectives.push_back(
          sum_of_parts(rank_program, parts_slot.value(), std::move(parts), kNoMicroBatch, after));
    for (Instruction& instruction : instructions_of(rank_program, each, after))
      collectives.push_back(std::move(instruction));
  }
  if (!in_parts.empty())
    collectives.push_back(
        sum_of_parts(rank_program, parts_slot.value(), std::move(in_parts), kNoMicroBatch, last));
}

}  // namespace

void add_gradient_reduction(const Job& job, Program& program) {
  const auto shares = gradient_shares(job, program);
  const auto all = parameters(job.transformer);
  for (const RankProgramId id : program.rank_programs.ids()) {
    RankProgram& rank_program = program.rank_programs[id];
    const auto due = reductions_of(job, shares, share_slots(shares, program, id), rank_program);
    add_reductions(job, rank_program, due, group_slot(program, id, GroupKind::tensor_gradient), all);
  }
}

}  // namespace motley
