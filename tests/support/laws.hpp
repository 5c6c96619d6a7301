// Tools of the laws: they really train a job, compare its losses with those of another, and compare both worlds.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "hw/world/train.hpp"
#include "models/compile/compile.hpp"
#include "models/trace/compare.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"
#include "tests/support/tiny_text.hpp"

namespace motley::tests {

// Really trains the job, or a Program compiled from it, and returns its losses.
inline std::vector<double> train(const Job& job, const Program& program, std::int64_t steps = 20) {
  TrainOptions options;
  options.steps = steps;
  return train_in_process(job, program, tiny_text(), options).losses;
}
inline std::vector<double> train(const Job& job, std::int64_t steps = 20) {
  return train(job, compile(job), steps);
}

// How many steps of two jobs are compared: an error in one step shows in the losses of the next, one in what the
// optimizer keeps in those of the third. With sanitizers a step takes three times as long, and they see all that a step
// does in the first step and, with its results, in the second.
inline constexpr std::size_t compared_steps = kSanitized ? 2 : 3;

// The losses of a job that check_same() compares others with.
inline std::vector<double> compared_losses(const Job& job) {
  return train(job, static_cast<std::int64_t>(compared_steps));
}
// The same, of a job that learns in `steps` steps, so that its losses fall by that much and equal losses mean
// something. Other builds say that it learns; the steps after those that are compared show a sanitizer nothing new.
inline std::vector<double> falling_losses(const Job& job, double by, std::int64_t steps = 20) {
  if (kSanitized) return compared_losses(job);
  const std::vector<double> losses = train(job, steps);
  REQUIRE(losses.back() < losses.front() - by);
  return losses;
}

// Requires that the job has these losses, within the precision of fp32, for at most compared_steps steps.
inline void check_same(const Job& job, const std::vector<double>& expected) {
  INFO(job.transformer.name << "\n" << print(job.strategy));
  const std::size_t steps = std::min(expected.size(), compared_steps);
  const auto losses = train(job, static_cast<std::int64_t>(steps));
  REQUIRE(losses.size() == steps);
  for (std::size_t step = 0; step < steps; ++step) {
    INFO("step " << step);
    REQUIRE(losses[step] == Approx(expected[step]).margin(1e-5).epsilon(0));
  }
}

// The results of one Program in both worlds.
struct BothWorlds {
  TrainResult real;
  Trace imagined;
};
// Requires that every compute has all its kernels, one after the other, inside it.
inline void check_kernels(const Program& program, const Trace& trace) {
  auto kernel = trace.kernels.begin();
  for (const TraceEvent& event : trace.events) {
    const Step& step = event.step;
    const auto* compute = program.at(step.rank, step.stream, step.index).as<Compute>();
    if (compute == nullptr) continue;
    double free_s = event.begin_s, flops = 0;
    const auto later = [](double a_s, double b_s) { return a_s > b_s + 1e-12 * std::abs(b_s); };
    for (int place = compute->first_kernel; place < compute->last_kernel; ++place, ++kernel) {
      const bool is_right = kernel != trace.kernels.end() && kernel->step == step &&
                            kernel->kernel == place && !later(free_s, kernel->begin_s) &&
                            kernel->end_s >= kernel->begin_s &&
                            kernel->bytes == find_kernel(program, step, place)->bytes;
      if (!is_right)
        FAIL("kernel " << place << " of " << describe(program, step.rank, step.stream, step.index));
      free_s = kernel->end_s;
      flops += kernel->flops;
    }
    REQUIRE_FALSE(later(free_s, event.end_s));
    REQUIRE(flops == Approx(event.flops).epsilon(1e-12));
  }
  REQUIRE(kernel == trace.kernels.end());
}

// Requires that both worlds have the same events with the same matching, membership, bytes, flops and allocations, in
// the same order per stream.
inline BothWorlds check_same_structure(const Job& job, const Program& program) {
  INFO(print(job.strategy));
  TrainOptions options;
  options.steps = 2;
  options.trace_step = 1;
  options.traces_kernels = true;
  SimOptions imagined;
  imagined.records_kernels = true;
  BothWorlds worlds{train_in_process(job, program, tiny_text(), options),
                    simulate_in_child(job, program, imagined)};
  const Comparison comparison = compare(program, worlds.real.trace, worlds.imagined);
  INFO(to_text(comparison));
  REQUIRE(comparison.compared == static_cast<std::int64_t>(worlds.imagined.events.size()));
  REQUIRE(comparison.equal_structure());
  for (const Trace* trace : {&worlds.real.trace, &worlds.imagined}) check_kernels(program, *trace);
  return worlds;
}

}  // namespace motley::tests
