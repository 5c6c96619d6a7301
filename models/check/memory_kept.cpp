#include "models/check/memory_kept.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/size.hpp"
#include "models/program/account.hpp"

namespace motley {
namespace {

bool keeps_otherwise(const Chip& chip) {
  return chip.software.kept_scores.value > 0 || chip.software.kept_masks.value > 0 ||
         chip.software.kept_logits.value > 0 || chip.software.kept_weight_gradients.value > 0 ||
         chip.software.one_master.value || chip.software.kept_optimizer.value > 0 ||
         chip.software.kept_weights.value > 0;
}

// A double: what is kept of a long sequence's scores may be more than an int64 counts.
double elements_of(const Tensor& tensor) {
  double count = 1;
  for (std::int64_t extent : tensor.shape) count *= static_cast<double>(extent);
  return count;
}

// Refuses ("too-large") what cannot be counted.
std::int64_t times(double bytes, double count) {
  const double product = bytes * count;
  constexpr std::int64_t kTooLarge = 2 * kMostSize;
  return size_sum(0,
                  product <= static_cast<double>(kMostSize) ? static_cast<std::int64_t>(product) : kTooLarge);
}

// Enlarges the kept scores. The row of each query is as long as the whole sequence, of which a rank may have a part.
void keep_scores(RankProgram& rank_program, const Kernel& kernel, double bytes) {
  Tensor& kept =
      rank_program.tensors[kernel.out.at(1)];  // the softmax of all scores, or one number for each query and
                                               // head
  if (kept.shape.size() == 4)
    kept.bytes = times(bytes, elements_of(kept));
  else
    kept.bytes += times(
        bytes, elements_of(kept) * static_cast<double>(kept.shape.back() * rank_program.context_parallel));
}

// Adds two masks: after attention, and after the feed-forward part, which has the same rows and width.
void keep_masks(RankProgram& rank_program, const Kernel& kernel, double bytes) {
  Tensor& middle = rank_program.tensors[kernel.out.at(0)];
  middle.bytes += times(2 * bytes, elements_of(middle));
}

void keep_logits(RankProgram& rank_program, Kernel& kernel, double bytes) {
  const Tensor &logits = rank_program.tensors[kernel.in.at(0)],
               gradient = rank_program.tensors[kernel.out.at(0)];
  const std::int64_t more = times(bytes, elements_of(logits)) - logits.bytes - gradient.bytes;
  if (more <= 0) {  // the gradient overwrites the logits
    rank_program.tensors[kernel.out.at(0)].bytes = std::max<std::int64_t>(0, gradient.bytes + more);
    return;
  }
  Tensor between = logits;
  between.name += ".between";
  between.role = TensorRole::activation_gradient;
  between.bytes = more;
  const TensorId id = rank_program.tensors.add(between);
  kernel.out.push_back(id);
  kernel.frees.push_back(id);
}

bool is_weight_gradient(const Kernel& kernel) {
  return kernel.op == KernelOp::matmul_weight_gradient ||
         kernel.op == KernelOp::grouped_matmul_weight_gradient;
}

// Adds gradients for the shapes of layers' weights; all experts of a layer share one.
void keep_weight_gradients(RankProgram& rank_program, double bytes) {
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const Block& block : rank_program.blocks)
    for (const Kernel& kernel : block.kernels)
      for (const Chunk& chunk : rank_program.chunks)
        if (is_weight_gradient(kernel) && kernel.layer >= chunk.first_layer &&
            kernel.layer < chunk.last_layer)
          shapes.insert({kernel.n, kernel.k});
  for (const auto& [n, k] : shapes) {
    Tensor dummy;
    dummy.name = "weight gradient";
    dummy.role = TensorRole::gradient;
    dummy.shape = {n, k};
    dummy.bytes = times(bytes, static_cast<double>(n) * static_cast<double>(k));
    rank_program.tensors.add(dummy);
  }
}

// Changes the bytes of AdamW's state. Its tensors have two or three numbers for each parameter.
void keep_optimizer(RankProgram& rank_program, double bytes) {
  for (Tensor& tensor : rank_program.tensors)
    if (tensor.role == TensorRole::optimizer)
      tensor.bytes = times(
          bytes, elements_of(tensor) / static_cast<double>(std::max<std::int64_t>(tensor.shape.front(), 1)));
}

// Changes the bytes of weights that are multiplied in fp8 with one scale for each tensor.
void keep_weights(RankProgram& rank_program, double bytes) {
  for (const Block& block : rank_program.blocks)
    for (const Kernel& kernel : block.kernels) {
      if (kernel.format != Format::fp8) continue;
      for (const TensorId id : kernel.parameters) {
        Tensor& tensor = rank_program.tensors[id];
        if (tensor.role == TensorRole::parameter) tensor.bytes = times(bytes, elements_of(tensor));
      }
    }
}

bool has_open_rows(const RankProgram& rank_program) {
  return std::any_of(rank_program.tensors.begin(), rank_program.tensors.end(),
                     [](const Tensor& tensor) { return tensor.use == TensorUse::expert_rows; });
}

// The format in which a matmul copies its operand, if it also frees both: no weight gradient reads either of them.
std::optional<Format> format_of_passing_copy(const RankProgram& rank_program, const Kernel& kernel) {
  if (kernel.op != KernelOp::matmul || !kernel.format || kernel.out.size() < 2) return std::nullopt;
  const auto is_freed = [&](TensorId id) {
    return std::find(kernel.frees.begin(), kernel.frees.end(), id) != kernel.frees.end();
  };
  const TensorId operand = kernel.in.at(0), copy = kernel.out.back();
  const Tensor& copied = rank_program.tensors[copy];
  const bool passes = is_narrow(copied.format) && is_freed(copy) && is_freed(operand) &&
                      copied.shape == rank_program.tensors[operand].shape;
  return passes ? std::optional(copied.format) : std::nullopt;
}

// The rows that a rank keeps of an operand which it gathers for a narrow matmul, and again for its weight gradient,
// with the format of the matmul. Nothing else reads them.
std::map<TensorId, Format> narrow_rows(const RankProgram& rank_program) {
  std::map<TensorId, Format> rows;
  std::set<TensorId> read_otherwise;
  for (const Block& block : rank_program.blocks) {
    std::map<TensorId, TensorId> placed;  // own rows by the tensor in which they are gathered
    for (const Kernel& kernel : block.kernels) {
      if (kernel.op == KernelOp::place_rows)
        placed[kernel.out.at(0)] = kernel.in.at(0);
      else
        read_otherwise.insert(kernel.in.begin(), kernel.in.end());
      const auto format = format_of_passing_copy(rank_program, kernel);
      if (const auto own = format ? placed.find(kernel.in.at(0)) : placed.end(); own != placed.end())
        rows[own->second] = *format;
    }
  }
  std::erase_if(rows, [&](const auto& entry) { return read_otherwise.contains(entry.first); });
  return rows;
}

// Assumes: these rows lie there in the narrow format only. Transformer Engine's LayerNormLinear casts its norm, keeps
// a rank's own rows of that and gathers them (transformer_engine/pytorch/module/layernorm_linear.py, 2.3, 2025-04).
void keep_rows_narrow(RankProgram& rank_program) {
  for (const auto& [id, format] : narrow_rows(rank_program)) {
    Tensor& tensor = rank_program.tensors[id];
    tensor.bytes = bytes_of(format, static_cast<std::int64_t>(elements_of(tensor)));
  }
}

// Experts' rows where no `expert_room` is given. Assumes: software of accelerators allocates rows for the copies that
// come, and to the busiest rank come 1.5 times the expected ones. Capacity factors in use are 1 to 2 (GShard 2,
// arXiv:2006.16668; Switch Transformer 1 to 1.5, arXiv:2101.03961, section 2.2).
void keep_expert_rows(RankProgram& rank_program) {
  constexpr double kRoom = 1.5;
  std::map<int, std::int64_t> expected;  // rows by layer
  for (const Block& block : rank_program.blocks)
    for (const Kernel& kernel : block.kernels)
      if (kernel.op == KernelOp::grouped_matmul) expected[kernel.layer] = kernel.m;
  std::set<TensorId> done;
  for (const Block& block : rank_program.blocks)
    for (const Kernel& kernel : block.kernels)
      for (const TensorId id : kernel.out) {
        Tensor& tensor = rank_program.tensors[id];
        if (tensor.use != TensorUse::expert_rows || !done.insert(id).second) continue;
        const double rows = static_cast<double>(tensor.shape.front());
        const double share = kRoom * static_cast<double>(expected[kernel.layer]) / rows;
        if (share < 1) tensor.bytes = times(share, static_cast<double>(tensor.bytes));
      }
}

void keep(RankProgram& rank_program, const Chip& chip, bool is_adamw) {
  if (chip.kind != "cpu") {
    keep_expert_rows(rank_program);
    keep_rows_narrow(rank_program);
  }
  for (Block& block : rank_program.blocks)
    for (Kernel& kernel : block.kernels) {
      if (kernel.op == KernelOp::attention && !is_share_of_attention(kernel) &&
          chip.software.kept_scores.value > 0)
        keep_scores(rank_program, kernel, chip.software.kept_scores.value);
      if (kernel.op == KernelOp::loss_backward && chip.software.kept_logits.value > 0)
        keep_logits(rank_program, kernel, chip.software.kept_logits.value);
      if (kernel.op != KernelOp::add_residual || chip.software.kept_masks.value <= 0) continue;
      const Tensor& sum = rank_program.tensors[kernel.out.at(0)];
      if (sum.use == TensorUse::attention_sum && sum.role == TensorRole::activation)
        keep_masks(rank_program, kernel, chip.software.kept_masks.value);
    }
  if (chip.software.kept_weight_gradients.value > 0)
    keep_weight_gradients(rank_program, chip.software.kept_weight_gradients.value);
  if (chip.software.one_master.value)
    for (const Shard& shard : rank_program.shards)
      if (shard.parameter_part) rank_program.tensors[*shard.parameter_part].bytes = 0;
  if (chip.software.kept_optimizer.value > 0 && is_adamw)
    keep_optimizer(rank_program, chip.software.kept_optimizer.value);
  if (chip.software.kept_weights.value > 0) keep_weights(rank_program, chip.software.kept_weights.value);
  refuse_uncountable(rank_program);
  account_bytes(rank_program);
}

bool is_kept_otherwise(const RankProgram& rank_program) {
  return has_open_rows(rank_program) || !narrow_rows(rank_program).empty();
}

}  // namespace

bool keeps_otherwise(const Program& program, const Cluster& cluster) {
  const bool open =
      std::any_of(program.rank_programs.begin(), program.rank_programs.end(), is_kept_otherwise);
  return std::any_of(cluster.groups.begin(), cluster.groups.end(), [open](const NodeGroup& group) {
    return keeps_otherwise(group.chip) || (open && group.chip.kind != "cpu");
  });
}

Program as_kept(Program program, const Cluster& cluster) {
  IdTable<RankProgramId, char> done(program.rank_programs.size());
  for (const RankEntry& entry : program.ranks) {
    if (done[entry.rank_program]) continue;
    done[entry.rank_program] = true;
    const Chip& chip = cluster.chip_of(entry.chip);
    if (keeps_otherwise(chip) || is_kept_otherwise(program.rank_programs[entry.rank_program]))
      keep(program.rank_programs[entry.rank_program], chip, program.optimizer == Optimizer::adamw);
  }
  return program;
}

}  // namespace motley
