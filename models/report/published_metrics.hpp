// The figures that published systems report, by their own formulas, so that their tables can be compared with ours.
// The formulas keep their faults (chips that idle are left out, recompute is counted though not done).
#pragma once

#include <cstdint>
#include <span>

#include "models/transformer/transformer.hpp"

namespace motley {

// Floating-point operations of one sequence of T tokens as Megatron-LM, and Holmes after it, count them: forward,
// backward and a full recompute, whether it is done or not. 96 T L C^2 (1 + T/(6C) + V/(16 L C)), arXiv:2104.04473.
double megatron_flops_per_sequence(const Transformer& transformer, std::int64_t T);

// Converts sequences a second to their TFLOP/s per chip, and back.
double megatron_flops_per_chip(const Transformer& transformer, std::int64_t T, double sequences_per_s,
                               std::int64_t chips);
double sequences_per_s(const Transformer& transformer, std::int64_t T, double flops_per_chip,
                       std::int64_t chips);

// Chips of one kind, and the throughput of one of them in the best run with only this kind (in any unit).
struct HomogeneousRun {
  std::int64_t chips = 0;
  double throughput_per_chip = 0;
};
// The sum of chips times throughput. It is HETHUB's upper bound (arXiv:2405.16256, as reconstructed: the paper's
// formula was not seen) if memory costs the runs nothing, and the denominator of H2's HeteroSpeedupRatio
// (arXiv:2505.17548) if it does.
double composite_throughput(std::span<const HomogeneousRun> runs);

// H2's estimate of a 1F1B step without communication: max over stages i of b t_i + alpha * sum of the other t_j, with
// t_i the seconds of a forward and a backward and b micro-batches. alpha: 1 for 1F1B, 0 for an ideal zero-bubble
// schedule. The estimate is at least the true makespan of 1F1B, and equal to it for equal stages (arXiv:2505.17548,
// as reconstructed; tests/models/plan/test_h2_formulas.cpp).
double hetero_auto_estimate_s(std::span<const double> stage_s, std::int64_t micro_batches,
                              double alpha = 1.0);

}  // namespace motley
