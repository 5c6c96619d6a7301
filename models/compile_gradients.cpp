// Passes "gradients" and "optimizer": after the last backward the gradients are summed over all who hold the parameter
// (one all-reduce a share after it, or bucket by bucket while it still runs), then tied embeddings over the first and
// last stage, then AdamW.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "models/compile_passes.hpp"
#include "models/gradient_shares.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

using Point = ComputePoint;

struct Bucket {
  int layer = 0;   // the last layer whose gradients are in it: what all members order their buckets by
  Point complete;  // its gradients are, from there on
  std::vector<std::int32_t> gradients;
  std::int64_t bytes = 0;
};

// The gradient tensor of each parameter that the class holds.
std::map<int, int> gradients_of(const ProgramClass& of_class) {
  std::map<int, int> result;
  for (std::size_t i = 0; i < of_class.tensors.size(); ++i)
    if (of_class.tensors[i].role == TensorRole::gradient && of_class.tensors[i].parameter >= 0)
      result[of_class.tensors[i].parameter] = static_cast<int>(i);
  return result;
}

const std::vector<Kernel>& kernels_at(const ProgramClass& of_class, int index) {
  return of_class.blocks[at(of_class.streams[0].instructions[at(index)].block)].kernels;
}

// Where each parameter's gradient is complete: after the last kernel of a backward that names it, which adds to it or
// only reads the weight and so does no harm. Only a block's last run counts.
std::map<int, Point> completions_of(const ProgramClass& of_class) {
  std::map<std::pair<int, int>, int> last_run;  // by block and first kernel: it may have been cut
  const auto& computes = of_class.streams[0].instructions;
  for (std::size_t i = 0; i < computes.size(); ++i)
    last_run[{computes[i].block, computes[i].first_kernel}] = static_cast<int>(i);
  std::map<int, Point> result;
  for (const auto& [piece, index] : last_run) {
    const Instruction& compute = computes[at(index)];
    if (of_class.blocks[at(compute.block)].pass == Pass::forward) continue;
    const auto& kernels = of_class.blocks[at(compute.block)].kernels;
    for (int i = compute.first_kernel; i < compute.last_kernel; ++i)
      for (int tensor : kernels[at(i)].parameters) {
        Point& complete = result[of_class.tensors[at(tensor)].parameter];
        complete = std::max(complete, Point{index, i + 1});
      }
  }
  return result;
}

int layer_at(const ProgramClass& of_class, const Point& point) {
  return kernels_at(of_class, point.index)[at(point.kernels - 1)].layer;
}

// The end of the layer, in its compute, that the point is in.
Point end_of_layer(const ProgramClass& of_class, Point point) {
  const auto& kernels = kernels_at(of_class, point.index);
  const int layer = layer_at(of_class, point);
  const int last = of_class.streams[0].instructions[at(point.index)].last_kernel;
  while (point.kernels < last && kernels[at(point.kernels)].layer == layer) ++point.kernels;
  return point;
}

// The share's gradients from the last layer to the first, the order in which backwards complete them; a bucket closes
// at the end of a layer once what is reduced of it holds bucket_bytes. Equal for all members of the share's groups.
std::vector<Bucket> buckets_of(const ProgramClass& of_class, const GradientShare& share, std::int32_t parts,
                               std::int64_t bucket_bytes) {
  const auto gradient = gradients_of(of_class);
  const auto completions = completions_of(of_class);
  struct Entry {
    int layer;
    Point complete;
    int parameter;
  };
  std::vector<Entry> order;
  for (std::int32_t parameter : share.parameters) {
    const Point complete = completions.at(parameter);
    order.push_back({layer_at(of_class, complete), complete, parameter});
  }
  std::stable_sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
    return a.layer != b.layer ? a.layer > b.layer : a.complete < b.complete;
  });
  std::vector<Bucket> buckets;
  Bucket open;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int id = gradient.at(order[i].parameter);
    open.gradients.push_back(id);
    open.bytes += of_class.tensors[at(id)].bytes / parts;
    open.layer = order[i].layer;
    open.complete = std::max(open.complete, end_of_layer(of_class, order[i].complete));
    const bool last = i + 1 == order.size();
    if (!last && (order[i + 1].layer == open.layer || open.bytes < bucket_bytes)) continue;
    buckets.push_back(open);
    open = {};
  }
  return buckets;
}

Instruction reduction(const ShareSlot& slot, const Bucket& bucket, int after) {
  Instruction made;
  made.op = Op::collective;
  made.slot = slot.slot;
  made.tensors = bucket.gradients;
  made.part = slot.part;
  made.parts = slot.parts;
  made.scale = slot.scale;
  made.bytes = bucket.bytes;
  made.after = {{0, after}};
  return made;
}

struct Due {
  ShareSlot slot;
  Bucket bucket;
  bool of_embedding = false;
  int shard = -1;
  bool of_part =
      false;  // which each micro-batch's gradients were reduced to: of copies in other classes, at the end
};

// What is reduced of a shard: the whole, or, where parts of the gradients are held, this rank's.
Bucket bucket_of(const ProgramClass& of_class, const Shard& shard, bool whole) {
  Bucket bucket;
  const auto completions = completions_of(of_class);
  for (int id : shard.gradients) {
    const Tensor& gradient = of_class.tensors[at(id)];
    const Point complete = completions.at(gradient.parameter);
    bucket.layer = layer_at(of_class, complete);
    bucket.complete = std::max(bucket.complete, end_of_layer(of_class, complete));
    bucket.bytes += gradient.bytes / shard.parts;
  }
  bucket.gradients = shard.gradients;
  if (whole) return bucket;
  const Format format = of_class.tensors[at(shard.gradients[0])].format;
  bucket.bytes = of_class.tensors[at(shard.optimizer)].shape[1] * bytes_of(format);
  if (shard.gradient_part >= 0) bucket.gradients = {shard.gradient_part};
  return bucket;
}

// -1: none.
int shard_with(const ProgramClass& of_class, int parameter) {
  for (std::size_t s = 0; s < of_class.shards.size(); ++s)
    for (int id : of_class.shards[s].gradients)
      if (of_class.tensors[at(id)].parameter == parameter) return static_cast<int>(s);
  return -1;
}

// Those that are reduced once a step: where gradients are held in parts, each micro-batch's are (compile_shards.cpp),
// and only what other classes hold of them is left.
void add_due_of_shards(const ProgramClass& of_class, const ShareSlot& slot, const GradientShare& share,
                       std::vector<Due>& due) {
  for (std::size_t s = 0; s < of_class.shards.size(); ++s) {
    const Shard& shard = of_class.shards[s];
    const bool of_part = shard.gradient_part >= 0;
    if (shard.slot != slot.slot) continue;
    if (of_part && (shard.replica_slot < 0 || share.holders.size() == 1)) continue;
    Due each{slot, bucket_of(of_class, shard, !of_part), false, static_cast<int>(s), of_part};
    if (share.last) each.bucket.layer = -2;
    due.push_back(std::move(each));
  }
}

std::vector<Due> reductions_of(const Job& job, const std::vector<GradientShare>& shares,
                               const std::vector<ShareSlot>& slots, const ProgramClass& of_class) {
  const std::int64_t bucket_bytes = job.strategy.overlap_gradients ? job.strategy.bucket_bytes : INT64_MAX;
  std::vector<Due> due;
  for (const ShareSlot& slot : slots) {
    const GradientShare& share = shares[at(slot.share)];
    const bool of_embedding = share.kind == GroupKind::embedding;
    if (slot.gather_slot >= 0) {
      add_due_of_shards(of_class, slot, share, due);
    } else if (const int s = of_embedding ? shard_with(of_class, share.parameters[0]) : -1; s >= 0) {
      due.push_back({slot, bucket_of(of_class, of_class.shards[at(s)], false), true, s});
    } else {
      for (Bucket& bucket : buckets_of(of_class, share, slot.parts, bucket_bytes)) {
        if (share.last) bucket.layer = -2;
        due.push_back({slot, std::move(bucket), of_embedding});
      }
    }
  }
  std::stable_sort(due.begin(), due.end(), [](const Due& a, const Due& b) {
    if (a.of_embedding != b.of_embedding) return b.of_embedding;
    if (a.bucket.layer != b.bucket.layer) return a.bucket.layer > b.bucket.layer;
    return a.slot.share < b.slot.share;
  });
  return due;
}

// All that is due of a bucket: the members of a shard's group end with the sum of their part, and then those who hold
// the same part sum it.
std::vector<Instruction> instructions_of(const ProgramClass& of_class, const Due& due, int after) {
  if (due.shard < 0) return {reduction(due.slot, due.bucket, after)};
  const Shard& shard = of_class.shards[at(due.shard)];
  std::vector<Instruction> made;
  if (!due.of_embedding && !due.of_part) {
    made.push_back(reduction(due.slot, due.bucket, after));
    made.back().collective = CollectiveKind::reduce_scatter;
    made.back().shard = due.shard;
  }
  if (due.of_embedding || shard.replica_slot >= 0) {
    ShareSlot copies = due.slot;
    if (!due.of_embedding) {  // of what is weighted and cut already
      copies = {};
      copies.slot = shard.replica_slot;
    }
    made.push_back(reduction(copies, bucket_of(of_class, shard, false), after));
    if (shard.gradient_part < 0) made.back().shard = due.shard;
  }
  return made;
}

// Those that are summed once a step: others are with each micro-batch (compile_shards.cpp).
std::vector<std::int32_t> held_gradients_in_parts(const ProgramClass& of_class,
                                                  const std::vector<Parameter>& all) {
  std::vector<std::int32_t> held;
  for (const auto& [parameter, gradient] : gradients_of(of_class)) held.push_back(gradient);
  return gradients_in_parts(of_class, all, held);
}

// Those of `from` that are among `gradients`, which it then lacks.
std::vector<std::int32_t> taken_from(std::vector<std::int32_t>& from,
                                     const std::vector<std::int32_t>& gradients) {
  std::vector<std::int32_t> taken;
  for (const std::int32_t id : gradients)
    if (std::erase(from, id) > 0) taken.push_back(id);
  return taken;
}

}  // namespace

void add_gradient_reduction(const Job& job, Program& program) {
  const auto shares = gradient_shares(job, program);
  const auto all = parameters(job.transformer);
  for (std::size_t i = 0; i < program.classes.size(); ++i) {
    ProgramClass& of_class = program.classes[i];
    const auto index = static_cast<std::int32_t>(i);
    const auto due = reductions_of(job, shares, share_slots(shares, program, index), of_class);
    const int parts_slot = group_slot(program, index, GroupKind::tensor_gradient);
    std::vector<std::int32_t> in_parts = held_gradients_in_parts(of_class, all);
    if (due.empty() && in_parts.empty()) continue;
    std::vector<Point> points;
    for (const Due& each : due)
      if (job.strategy.overlap_gradients && !each.of_embedding && !each.of_part)
        points.push_back(each.bucket.complete);
    const auto ends = cut_computes(of_class, points);
    const int last = static_cast<int>(of_class.streams[0].instructions.size()) - 1;
    const auto stream = at(stream_of(of_class, StreamKind::collective));
    auto& collectives = of_class.streams[stream].instructions;
    for (const Due& each : due) {
      const bool early = job.strategy.overlap_gradients && !each.of_embedding && !each.of_part;
      const int after = early ? ends.at(each.bucket.complete) : last;
      if (auto parts = taken_from(in_parts, each.bucket.gradients); !parts.empty())
        collectives.push_back(sum_of_parts(of_class, parts_slot, std::move(parts), -1, after));
      for (Instruction& made : instructions_of(of_class, each, after)) collectives.push_back(std::move(made));
    }
    if (!in_parts.empty())
      collectives.push_back(sum_of_parts(of_class, parts_slot, std::move(in_parts), -1, last));
  }
}

namespace {

// Of the parameters that are held whole, but renewed by each member in part.
Instruction gather_of(const ProgramClass& of_class, std::size_t s) {
  const Shard& shard = of_class.shards[s];
  Instruction gather;
  gather.op = Op::collective;
  gather.collective = CollectiveKind::all_gather;
  gather.slot = shard.gather_slot;
  gather.shard = static_cast<std::int32_t>(s);
  gather.part = shard.part;
  gather.parts = shard.parts;
  gather.tensors = shard.parameters;
  for (int id : shard.parameters) gather.bytes += of_class.tensors[at(id)].bytes / shard.parts;
  return gather;
}

void gather_after_step(ProgramClass& of_class) {
  const int optimizer = static_cast<int>(of_class.streams[0].instructions.size()) - 1;
  for (std::size_t s = 0; s < of_class.shards.size(); ++s) {
    if (of_class.shards[s].parameter_part >= 0) continue;
    Instruction gather = gather_of(of_class, s);
    gather.after = {{0, optimizer}};
    const auto stream = at(stream_of(of_class, StreamKind::gather));
    of_class.streams[stream].instructions.push_back(std::move(gather));
  }
}

// The first kernel of a step that reads any of the shard's parameters, as the end of what may run before it.
std::optional<Point> first_read(const ProgramClass& of_class, const Shard& shard) {
  const auto& computes = of_class.streams[0].instructions;
  const std::set<std::int32_t> wanted(shard.parameters.begin(), shard.parameters.end());
  for (std::size_t i = 0; i < computes.size(); ++i) {
    if (computes[i].op != Op::compute) continue;
    const auto& kernels = of_class.blocks[at(computes[i].block)].kernels;
    for (int k = computes[i].first_kernel; k < computes[i].last_kernel; ++k)
      if (reads_parameters(kernels[at(k)].op))
        for (const int id : kernels[at(k)].parameters)
          if (wanted.contains(id)) return Point{static_cast<int>(i), k};
  }
  return std::nullopt;
}

// What the step before renewed, from the first layer to the last: shards stand the other way round. The first step
// gathers first values, which all hold already.
void gather_before_use(ProgramClass& of_class) {
  std::vector<Point> cuts;
  for (const Shard& shard : of_class.shards)
    if (shard.parameter_part < 0)
      if (const auto read = first_read(of_class, shard)) cuts.push_back(*read);
  cut_computes(of_class, cuts);
  for (std::size_t s = of_class.shards.size(); s-- > 0;) {
    const Shard& shard = of_class.shards[s];
    if (shard.parameter_part >= 0) continue;
    const int stream = stream_of(of_class, StreamKind::gather);
    auto& gathers = of_class.streams[at(stream)].instructions;
    gathers.push_back(gather_of(of_class, s));
    if (const auto read = first_read(of_class, shard))
      of_class.streams[0].instructions[at(read->index)].after.push_back(
          {static_cast<std::int16_t>(stream), static_cast<int>(gathers.size()) - 1});
  }
}

}  // namespace

void add_optimizer(const Job& job, Program& program) {
  for (ProgramClass& of_class : program.classes) {
    Instruction step;
    step.op = Op::optimizer;
    const int reduced = find_stream(of_class, StreamKind::collective);
    if (reduced >= 0)
      step.after.push_back(
          {static_cast<std::int16_t>(reduced),
           static_cast<int>(of_class.streams[static_cast<std::size_t>(reduced)].instructions.size()) - 1});
    of_class.streams[0].instructions.push_back(step);
    if (job.strategy.overlap_parameters)
      gather_before_use(of_class);
    else
      gather_after_step(of_class);
  }
}

}  // namespace motley
