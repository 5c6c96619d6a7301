// Sequences cut over ranks in the Sim world: one rank of a class stands for all, and the time of gathers is exposed.
#include <catch2/catch.hpp>

#include "models/compile/compile.hpp"
#include "models/report/report.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/context_jobs.hpp"

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
