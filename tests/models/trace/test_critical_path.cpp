// The critical path: a chain from the first instant to the last along dependencies of the Program.
#include <catch2/catch.hpp>

#include "models/compile/compile.hpp"
#include "models/report/report.hpp"
#include "models/trace/critical_path.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/timed_trace.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

double end_of(const Trace& trace) {
  double end_s = 0;
  for (const TraceEvent& event : trace.events) end_s = std::max(end_s, event.end_s);
  return end_s;
}

// The seconds of the path's links on one stage's compute stream.
double computing_s(const Program& program, const CriticalPath& path, int stage) {
  double sum_s = 0;
  for (const CriticalLink& link : path.links)
    if (link.step.stream == kComputeStream && program.ranks[link.step.rank].stage == stage)
      sum_s += link.end_s - link.begin_s;
  return sum_s;
}

// A trace in which forwards take 1 s and backwards 2 s, three times as long on the second stage, transfers 0.25 s, and
// all else no time.
Trace slow_second_stage(const Program& program) {
  return TimedRun(program,
                  [&](const Step& step, const Instruction& i) {
                    if (i.message() != nullptr) return 0.25;
                    const auto* compute = i.as<Compute>();
                    if (compute == nullptr) return 0.0;
                    const double pass_s = compute->block == BlockId{} ? 1.0 : 2.0;
                    return program.ranks[step.rank].stage == 1 ? 3 * pass_s : pass_s;
                  })
      .run();
}

}  // namespace

TEST_CASE("the critical path of every small strategy fills its iteration without a gap") {
  for (const Job& job : every_small_job(Family::gpt2)) {
    const Program program = compile(job);
    const Trace trace = timed_trace(program);
    const CriticalPath path = find_critical_path(program, trace);
    CAPTURE(print(job.strategy));
    CHECK(path.gap_s() == 0);
    CHECK(path.duration_s() == Approx(end_of(trace)).epsilon(1e-12));
    CHECK(path.links.front().joint == Joint::first);
    const PathBreakdown parts = make_report(job, program, trace).critical_path;
    CHECK(parts.compute_s + parts.recompute_s + parts.tensor_parallel_s + parts.pipeline_s +
              parts.data_parallel_s + parts.optimizer_s + parts.gap_s ==
          Approx(end_of(trace)).epsilon(1e-12));
    CHECK(parts.links == static_cast<std::int64_t>(path.links.size()));
    CHECK((parts.recompute_s > 0) == (job.strategy.recompute == Recompute::full));
  }
}

TEST_CASE("a slow second stage is where the critical path runs, and the way to it and back is there once") {
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  const Trace trace = slow_second_stage(program);
  const CriticalPath path = find_critical_path(program, trace);
  // 8 micro-batches: the first forward, the way to stage 1, 8 forwards and backwards there, the way back, the last
  // backward.
  CHECK(end_of(trace) == Approx(1 + 0.25 + 8 * 9 + 0.25 + 2));
  CHECK(computing_s(program, path, 0) == Approx(1 + 2));
  CHECK(computing_s(program, path, 1) == Approx(8 * 9));
  const PathBreakdown parts = make_report(job, program, trace).critical_path;
  CHECK(parts.pipeline_s == Approx(0.5));
  CHECK(parts.gap_s == 0);
}

TEST_CASE("the side of a collective that came last is where the critical path came from") {
  const Job job = tiny_job({1, 1, 2});
  const Program program = compile(job);
  const Trace trace = TimedRun(program, [](const Step& step, const Instruction& i) {
                        return i.op() == Op::collective ? 0.5 : step.rank == 1_rank ? 2.0 : 1.0;
                      }).run();
  const CriticalPath path = find_critical_path(program, trace);
  CHECK(path.duration_s() == Approx(end_of(trace)));
  for (const CriticalLink& link : path.links)
    if (program.at(link.step.rank, link.step.stream, link.step.index).op() == Op::compute)
      CHECK(link.step.rank == 1_rank);
}

TEST_CASE("what nobody waited for is a gap of the critical path") {
  const Program program = compile(tiny_job({1, 1, 1}));
  Trace trace = timed_trace(program);
  const double whole_s = end_of(trace);
  for (std::size_t i = 3; i < trace.events.size(); ++i) {
    TraceEvent& event = trace.events[i];
    if (i > 3) event.free_s += 0.125;
    event.begin_s += 0.125;
    event.matched_s += 0.125;
    event.end_s += 0.125;
  }
  const CriticalPath path = find_critical_path(program, trace);
  CHECK(path.gap_s() == Approx(0.125));
  CHECK(path.duration_s() == Approx(whole_s));
  CHECK(path.links[3].gap_s == Approx(0.125));
}

TEST_CASE("a trace of nothing has no critical path") {
  CHECK(find_critical_path(compile(tiny_job({1, 1, 1})), {}).links.empty());
}
