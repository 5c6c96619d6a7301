#include "models/transformer/optimizer.hpp"

#include <algorithm>

#include "models/base/size.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {
namespace {

constexpr std::int64_t kFp32 = 4;

std::int64_t elements_of_shape(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements = size_product({elements, extent});
  return elements;
}

std::int64_t blocks_of(std::int64_t elements, std::int64_t block) { return (elements + block - 1) / block; }

// A stack of experts' matrices of equal shapes, or one matrix.
struct Stack {
  std::int64_t count = 1, rows = 0, columns = 0;
};
Stack stack_of(const Parameter& parameter, const std::vector<std::int64_t>& shard) {
  const std::int64_t count = std::max<std::int64_t>(1, parameter.experts);
  return {count, shard[0] / count, shard[1]};
}

// bitsandbytes 0.45 (2024-12), bitsandbytes/optim/optimizer.py: blocks of 256, `min_8bit_size` 4,096.
std::int64_t moments_8bit(std::int64_t elements) {
  constexpr std::int64_t kBlock = 256, kLeast = 4'096;
  if (elements < kLeast) return 2 * kFp32 * elements;
  return 2 * (elements + kFp32 * blocks_of(elements, kBlock));
}

}  // namespace

bool is_orthogonalized(const Parameter& parameter) {
  return parameter.shape.size() == 2 &&
         (parameter.name.starts_with("layers.") || parameter.name.starts_with("extra."));
}

bool may_be_quantized(const Parameter& parameter) {
  return !parameter.trained && is_orthogonalized(parameter);
}

std::int64_t kept_copies(const OptimizerRule& rule, const Parameter& parameter) {
  const std::int64_t masters = rule.has_masters() ? 1 : 0;
  switch (rule.optimizer) {
    case Optimizer::adamw:
    case Optimizer::adamw_8bit:
      return masters + 2;
    case Optimizer::muon:
      return masters + (is_orthogonalized(parameter) ? 1 : 2);
    case Optimizer::adafactor:
      return masters + (parameter.shape.size() == 2 ? 0 : 1);
    case Optimizer::sgd:
      break;
  }
  return masters;
}

std::int64_t optimizer_bytes(const OptimizerRule& rule, const Parameter& parameter,
                             const std::vector<std::int64_t>& shard) {
  const std::int64_t elements = elements_of_shape(shard);
  const std::int64_t full = size_product({kept_copies(rule, parameter), kFp32, elements});
  if (rule.optimizer == Optimizer::adamw_8bit) return full - 2 * kFp32 * elements + moments_8bit(elements);
  if (rule.optimizer == Optimizer::adafactor && parameter.shape.size() == 2) {
    const Stack stack = stack_of(parameter, shard);
    return full + kFp32 * stack.count * (stack.rows + stack.columns);
  }
  return full;
}

double orthogonalization_flops(const Parameter& parameter, const std::vector<std::int64_t>& shard) {
  if (!is_orthogonalized(parameter)) return 0;
  constexpr double kIterations = 5;
  const Stack stack = stack_of(parameter, shard);
  const auto n = static_cast<double>(std::max(stack.rows, stack.columns));
  const auto m = static_cast<double>(std::min(stack.rows, stack.columns));
  return static_cast<double>(stack.count) * kIterations * (4 * n * m * m + 2 * m * m * m);
}

std::int64_t nf4_bytes(std::int64_t elements) {
  const std::int64_t scales = blocks_of(elements, 64);
  return blocks_of(elements, 2) + scales + kFp32 * blocks_of(scales, 256);
}

}  // namespace motley
