#include "models/memory_kept.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "models/compile_passes.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

bool keeps_otherwise(const Chip& chip) {
  return chip.kept_scores.value > 0 || chip.kept_masks.value > 0 || chip.kept_logits.value > 0 ||
         chip.kept_weight_gradients.value > 0 || chip.one_master.value > 0 || chip.kept_optimizer.value > 0;
}

std::int64_t elements_of(const Tensor& tensor) {
  std::int64_t count = 1;
  for (std::int64_t extent : tensor.shape) count *= extent;
  return count;
}

std::int64_t times(double bytes, std::int64_t count) {
  return static_cast<std::int64_t>(bytes * static_cast<double>(count));
}

// Every query's row of scores is as long as the sequence, of which a rank may have a part.
void keep_scores(ProgramClass& of_class, const Kernel& kernel, double bytes) {
  Tensor& kept =
      of_class.tensors[at(kernel.out.at(1))];  // the softmax of all scores, or a number a query and head
  if (kept.shape.size() == 4)
    kept.bytes = times(bytes, elements_of(kept));
  else
    kept.bytes += times(bytes, elements_of(kept) * kept.shape.back() * of_class.context_parallel);
}

// Two masks: behind attention, and behind the feed-forward part, which has the same rows and width.
void keep_masks(ProgramClass& of_class, const Kernel& kernel, double bytes) {
  Tensor& middle = of_class.tensors[at(kernel.out.at(0))];
  middle.bytes += times(2 * bytes, elements_of(middle));
}

void keep_logits(ProgramClass& of_class, Kernel& kernel, double bytes) {
  const Tensor &logits = of_class.tensors[at(kernel.in.at(0))],
               gradient = of_class.tensors[at(kernel.out.at(0))];
  const std::int64_t more = times(bytes, elements_of(logits)) - logits.bytes - gradient.bytes;
  if (more <= 0) {  // the gradient stands where the logits did
    of_class.tensors[at(kernel.out.at(0))].bytes = std::max<std::int64_t>(0, gradient.bytes + more);
    return;
  }
  Tensor between = logits;
  between.name += ".between";
  between.role = TensorRole::activation_gradient;
  between.bytes = more;
  const auto id = static_cast<std::int32_t>(of_class.tensors.size());
  of_class.tensors.push_back(between);
  kernel.out.push_back(id);
  kernel.frees.push_back(id);
}

bool is_weight_gradient(const Kernel& kernel) {
  return kernel.op == KernelOp::matmul_weight_gradient ||
         kernel.op == KernelOp::grouped_matmul_weight_gradient;
}

// Of layers alone, and of all experts one.
void keep_weight_gradients(ProgramClass& of_class, double bytes) {
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const Block& block : of_class.blocks)
    for (const Kernel& kernel : block.kernels)
      for (const Chunk& chunk : of_class.chunks)
        if (is_weight_gradient(kernel) && kernel.layer >= chunk.first_layer &&
            kernel.layer < chunk.last_layer)
          shapes.insert({kernel.n, kernel.k});
  for (const auto& [n, k] : shapes) {
    Tensor dummy;
    dummy.name = "weight gradient";
    dummy.role = TensorRole::gradient;
    dummy.shape = {n, k};
    dummy.bytes = times(bytes, n * k);
    of_class.tensors.push_back(dummy);
  }
}

// Whose tensors are of two or three numbers a parameter.
void keep_optimizer(ProgramClass& of_class, double bytes) {
  for (Tensor& tensor : of_class.tensors)
    if (tensor.role == TensorRole::optimizer)
      tensor.bytes = times(bytes, elements_of(tensor) / tensor.shape.front());
}

void keep(ProgramClass& of_class, const Chip& chip) {
  for (Block& block : of_class.blocks)
    for (Kernel& kernel : block.kernels) {
      if (kernel.op == KernelOp::attention && chip.kept_scores.value > 0)
        keep_scores(of_class, kernel, chip.kept_scores.value);
      if (kernel.op == KernelOp::loss_backward && chip.kept_logits.value > 0)
        keep_logits(of_class, kernel, chip.kept_logits.value);
      if (kernel.op != KernelOp::add_residual || chip.kept_masks.value <= 0) continue;
      const std::string& name = of_class.tensors[at(kernel.out.at(0))].name;
      if (name.ends_with(".middle") || name.ends_with(".middle.again"))
        keep_masks(of_class, kernel, chip.kept_masks.value);
    }
  if (chip.kept_weight_gradients.value > 0) keep_weight_gradients(of_class, chip.kept_weight_gradients.value);
  if (chip.one_master.value > 0)
    for (const Shard& shard : of_class.shards)
      if (shard.parameter_part >= 0) of_class.tensors[at(shard.parameter_part)].bytes = 0;
  if (chip.kept_optimizer.value > 0) keep_optimizer(of_class, chip.kept_optimizer.value);
  account_bytes(of_class);
}

}  // namespace

bool keeps_otherwise(const Cluster& cluster) {
  return std::any_of(cluster.groups.begin(), cluster.groups.end(),
                     [](const NodeGroup& group) { return keeps_otherwise(group.chip); });
}

Program as_kept(Program program, const Cluster& cluster) {
  std::vector<bool> done(program.classes.size());
  for (const RankEntry& entry : program.ranks) {
    if (done[at(entry.of_class)]) continue;
    done[at(entry.of_class)] = true;
    const Chip& chip = cluster.chip_of(entry.chip);
    if (keeps_otherwise(chip)) keep(program.classes[at(entry.of_class)], chip);
  }
  return program;
}

}  // namespace motley
