// Sequences cut over ranks in the Sim world: one rank of a class stands for all, and the time of gathers is exposed.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "models/compile/compile.hpp"
#include "models/explain/path_parts.hpp"
#include "models/report/report.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/context_jobs.hpp"
#include "tests/support/dice.hpp"

using namespace motley;

TEST_CASE("folded equals unfolded where ranks have parts of the same sequences", "[fold]") {
  for (const CollectiveLevel level :
       {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded})
    for (Job job : tests::every_context_job(Family::llama)) {
      INFO(print(job.strategy));
      job.fidelity.data_parallel = level;
      const Program program = compile(job);
      job.fidelity.fold = true;
      const Trace folded = simulate_in_child(job, program);
      job.fidelity.fold = false;
      const Trace whole = simulate_in_child(job, program);
      CHECK(folded.events.size() < whole.events.size());
      CHECK(make_report(job, program, folded).iteration_s == make_report(job, program, whole).iteration_s);
    }
}

namespace {

struct TimesOfContext {
  double step_s = 0, computes_s = 0, exchanges_s = 0;  // of the rank that does most
};

TimesOfContext times_of(const Job& job) {
  const Program program = compile(job);
  const Trace trace = simulate_in_child(job, program);
  TimesOfContext times;
  times.step_s = duration_s(trace);
  std::map<Rank, TimesOfContext> by_rank;
  for (const TraceEvent& event : trace.events) {
    const Instruction& instruction = program.at(event.step.rank, event.step.stream, event.step.index);
    const RankProgram& rank_program = program.program_of(event.step.rank);
    const auto* collective = instruction.as<Collective>();
    if (instruction.op() == Op::compute) by_rank[event.step.rank].computes_s += event.end_s - event.begin_s;
    if (collective != nullptr && collective->slot == context_slot(rank_program))
      by_rank[event.step.rank].exchanges_s += event.end_s - event.matched_s;
  }
  for (const auto& [rank, each] : by_rank) {
    times.computes_s = std::max(times.computes_s, each.computes_s);
    times.exchanges_s = std::max(times.exchanges_s, each.exchanges_s);
  }
  return times;
}

}  // namespace

TEST_CASE(
    "keys that come while a rank attends take no longer than before it, and no less than either alone") {
  tests::Dice dice(11);
  int hidden = 0;
  for (int draw = 0; draw < 24; ++draw) {
    const std::int64_t cp = dice.one_of({2, 4, 8}), tp = dice.one_of({1, 2});
    Job job = tests::context_job({tp, 1, 1}, cp, tests::tiny_transformer(Family::llama));
    job.strategy.recompute = dice.one_of({Recompute::none, Recompute::full, Recompute::selective});
    job.strategy.zero = dice.one_of({0, 3});
    job.fidelity.data_parallel = dice.one_of({CollectiveLevel::formula, CollectiveLevel::fluid});
    for (NodeGroup& group : job.cluster.groups) {
      group.inside.bandwidth *= dice.one_of({0.01, 0.1, 1.0, 10.0});
      group.inside.latency_s *= dice.one_of({0.0, 1.0, 10.0});
    }
    build_topology(job.cluster);
    INFO(print(job.strategy) << print(job.cluster));
    const TimesOfContext ring = times_of(job);
    job.strategy.overlap_context = false;
    const TimesOfContext gathered = times_of(job);
    CHECK(ring.step_s <= gathered.step_s * (1 + 1e-9));
    CHECK(ring.step_s >= std::max(ring.computes_s, ring.exchanges_s) * (1 - 1e-9));
    CHECK(gathered.step_s >= (gathered.computes_s + gathered.exchanges_s) * (1 - 1e-9));
    CHECK(ring.exchanges_s >= gathered.exchanges_s * (1 - 1e-9));
    hidden += ring.step_s < gathered.step_s * 0.99 ? 1 : 0;
  }
  CHECK(hidden > 6);
}

TEST_CASE("what context groups gather is exposed, and its column stands only where there are some") {
  const Job job = tests::context_job({2, 1, 1}, 2, tests::tiny_transformer(Family::llama));
  const Program program = compile(job);
  const Report report = make_report(job, program, simulate_in_child(job, program));
  const StageBreakdown& row = report.breakdown.at(0);
  CHECK(row.context_parallel_s > 0);
  CHECK(row.compute_s + row.recompute_s + row.bubble_s + row.tensor_parallel_s + row.expert_parallel_s +
            row.context_parallel_s + row.pipeline_s + row.data_parallel_s + row.optimizer_s ==
        Approx(report.iteration_s));
  CHECK(report.critical_path.context_parallel_s > 0);
  CHECK(to_text(report).find("exposed CP") != std::string::npos);
  CHECK(to_json(report).find("exposed_context_parallel_s") != std::string::npos);
  const Job plain = tests::tiny_job({2, 1, 2});
  const Program other = compile(plain);
  CHECK(to_text(make_report(plain, other, simulate_in_child(plain, other))).find("CP") == std::string::npos);
}
