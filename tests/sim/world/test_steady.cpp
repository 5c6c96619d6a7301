// Where steps overlap (Strategy::steps_overlap), a step is the period between steps. Laws over random jobs: the period
// is what steps that are really written out one after another take; it is never longer than one step alone, never
// shorter than the work of a rank, and equal to one step where all ranks meet at its end.
#include <catch2/catch.hpp>

#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/program/next_step.hpp"
#include "models/report/attribution.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr unsigned kFirstSteady = 7000, kSteadyDraws = kSanitized ? 10 : 40;
constexpr double kRepeats = 1e-6;  // share of a step

// The same steps `count` times in one Program, each rank's next one after its last one.
Program written_out_steps(const Program& one, int count) {
  Program many = one;
  for (RankProgramId id : one.rank_programs.ids()) {
    const auto& streams = one.rank_programs[id].streams;
    for (StreamId stream : streams.ids()) {
      auto& instructions = many.rank_programs[id].streams[stream].instructions;
      instructions.clear();
      for (int step = 0; step < count; ++step)
        for (const Instruction& each : streams[stream].instructions) {
          const auto in_step = [&](const After& after, int of_step) {
            const auto length = static_cast<std::int32_t>(streams[after.stream].instructions.size());
            return After{after.stream, after.index + of_step * length};
          };
          const bool is_first = &each == &streams[stream].instructions.front();
          Instruction& copy = instructions.emplace_back(each);
          for (After& after : copy.after) after = in_step(after, step);
          if (is_first && step > 0)
            for (const After& after : awaited_of_last_step(one.rank_programs[id], stream))
              copy.after.push_back(in_step(after, step - 1));
        }
    }
  }
  return many;
}

double alone_s(Job job, const Program& program) {
  job.strategy.overlap_steps = false;
  return end_of(simulate_in_child(job, program));
}

double most_work_s(const Trace& trace) {
  std::map<Rank, double> work;
  for (const TraceEvent& event : trace.events)
    if (event.step.stream == kComputeStream) work[event.step.rank] += event.end_s - event.matched_s;
  double most = 0;
  for (const auto& [rank, seconds] : work) most = std::max(most, seconds);
  return most;
}

template <class Check>
void for_steady_draws(const Check& check) {
  for (unsigned seed = kFirstSteady; seed < kFirstSteady + kSteadyDraws; ++seed) {
    Job job = any_job(seed);
    job.strategy.overlap_steps = true;
    CAPTURE(seed);
    INFO(written_out(job));
    const Program program = compile(job);
    check(job, program, simulate_in_child(job, program));
  }
}

}  // namespace

TEST_CASE(
    "a step is the period of steps that follow each other, at most one step alone, at least a rank's work",
    "[laws]") {
  int shorter = 0;
  for_steady_draws([&](const Job& job, const Program& program, const Trace& trace) {
    const double once_s = alone_s(job, program);
    REQUIRE(trace.period_s > 0);
    CHECK(trace.period_s <= once_s * (1 + kRepeats));
    CHECK(trace.period_s >= most_work_s(trace) * (1 - kRepeats));
    shorter += trace.period_s < 0.99 * once_s ? 1 : 0;
    constexpr int kSome = 8, kMore = 12;
    const double some_s = alone_s(job, written_out_steps(program, kSome)),
                 more_s = alone_s(job, written_out_steps(program, kMore));
    CHECK(more_s - some_s == Approx((kMore - kSome) * trace.period_s).epsilon(1e-3));
  });
  CHECK(shorter > static_cast<int>(kSteadyDraws) / 8);  // the law is of more than barriers
}

TEST_CASE("attribution and the critical path add up to the period", "[laws]") {
  for_steady_draws([&](const Job& job, const Program& program, const Trace& trace) {
    CostTable costs(program, job.cluster);
    Attribution attribution(program, costs, trace);
    CHECK(attribution.path().duration_s() + attribution.path().gap_s() ==
          Approx(trace.period_s).epsilon(1e-9));
    for (const auto& [rank, row] : attribution.by_rank()) {
      CAPTURE(rank.value());
      CHECK(row.sum_s() == Approx(trace.period_s).epsilon(1e-6));
    }
  });
}

TEST_CASE("the period is one step where all ranks meet at its end") {
  for (const Degrees& degrees : {Degrees{1, 1, 2}, Degrees{1, 1, 4}, Degrees{2, 1, 2}}) {
    Job job = tiny_job(degrees);
    job.strategy.overlap_steps = true;
    const Program program = compile(job);
    const Trace trace = simulate_in_child(job, program);
    CHECK(trace.period_s == Approx(alone_s(job, program)).epsilon(1e-9));
  }
}
