#include "models/report/published_metrics.hpp"

#include <algorithm>
#include <numeric>

namespace motley {

double megatron_flops_per_sequence(const Transformer& transformer, std::int64_t T) {
  const auto L = static_cast<double>(transformer.layers), C = static_cast<double>(transformer.hidden),
             V = static_cast<double>(transformer.vocabulary), tokens = static_cast<double>(T);
  return 96.0 * tokens * L * C * C * (1.0 + tokens / (6.0 * C) + V / (16.0 * L * C));
}

double megatron_flops_per_chip(const Transformer& transformer, std::int64_t T, double sequences,
                               std::int64_t chips) {
  return megatron_flops_per_sequence(transformer, T) * sequences / static_cast<double>(chips);
}

double sequences_per_s(const Transformer& transformer, std::int64_t T, double flops_per_chip,
                       std::int64_t chips) {
  return flops_per_chip * static_cast<double>(chips) / megatron_flops_per_sequence(transformer, T);
}

double composite_throughput(std::span<const HomogeneousRun> runs) {
  double sum = 0;
  for (const HomogeneousRun& run : runs) sum += static_cast<double>(run.chips) * run.throughput_per_chip;
  return sum;
}

double hetero_auto_estimate_s(std::span<const double> stage_s, std::int64_t micro_batches, double alpha) {
  const double all = std::accumulate(stage_s.begin(), stage_s.end(), 0.0);
  double longest = 0;
  for (double t : stage_s)
    longest = std::max(longest, static_cast<double>(micro_batches) * t + alpha * (all - t));
  return longest;
}

}  // namespace motley
