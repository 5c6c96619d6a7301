// The figures that the published systems report, by their own formulas, so that their tables and ours can be compared.
// What they leave out (chips that idle, recompute that is counted though not done) is theirs.
#pragma once

#include <cstdint>
#include <span>

#include "models/trace/trace.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

// Floating-point operations of one sequence of T tokens as Megatron-LM, and Holmes after it, count them: forward,
// backward and a full recompute, whether it is done or not. 96 T L C^2 (1 + T/(6C) + V/(16 L C)), arXiv:2104.04473.
double megatron_flops_per_sequence(const Transformer& transformer, std::int64_t T);

// Their TFLOP/s per chip at so many sequences a second, and back.
double megatron_flops_per_chip(const Transformer& transformer, std::int64_t T, double sequences_per_s,
                               std::int64_t chips);
double sequences_per_s(const Transformer& transformer, std::int64_t T, double flops_per_chip,
                       std::int64_t chips);

// From a step's begin to the next's where ranks run on into the next step without waiting for all to end this one, as
// zero-bubble schedules do when their optimizer is validated afterwards (arXiv:2401.10241, section 4): the longest that
// a rank takes from its first work (what it waits to receive is none) to its end. Every rank's next step can begin so
// much after this one, as steps are alike; where a rank works from the first instant to the last, this is the step.
double step_to_step_s(const Program& program, const Trace& trace);

// Chips of one kind, and what one of them does in the best run that has only its kind (any unit of throughput).
struct HomogeneousRun {
  std::int64_t chips = 0;
  double throughput_per_chip = 0;
};
// The sum of chips times throughput: HETHUB's upper bound (arXiv:2405.16256, as reconstructed: the paper's formula was
// not seen) where the runs pay no price for memory, and the denominator of H2's HeteroSpeedupRatio (arXiv:2505.17548)
// where they do.
double composite_throughput(std::span<const HomogeneousRun> runs);

// H2's estimate of a 1F1B step without communication: max over stages i of b t_i + alpha * sum of the other t_j, with
// t_i the seconds of a forward and a backward and b micro-batches. alpha: 1 for 1F1B, 0 for an ideal zero-bubble
// schedule. Never below the true makespan of 1F1B, and equal to it where stages are equal (arXiv:2505.17548, as
// reconstructed; tests/models/plan/test_h2_formulas.cpp).
double hetero_auto_estimate_s(std::span<const double> stage_s, std::int64_t micro_batches,
                              double alpha = 1.0);

}  // namespace motley
