// What a simulation says it will need lies near what it then takes.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "models/base/data_files.hpp"
#include "models/compile/compile.hpp"
#include "models/report/report.hpp"
#include "models/scenario/scenario.hpp"
#include "sim/simulate.hpp"
#include "tests/support/measured_child.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

using Measured = MeasuredChild<double>;

Job with_batch(Job job, std::int64_t global_batch) {
  job.train.global_batch = global_batch;
  const Strategy given = job.strategy;
  job.strategy = expand(job.transformer, job.train, given.tp(), given.pp(), given.dp());
  job.strategy.recompute = given.recompute;
  return job;
}

}  // namespace

TEST_CASE("the memory that a simulation announces is within a factor of 1.5 of what it takes") {
  if (kSanitized) return;  // a sanitizer takes memory of its own
  struct Size {
    const char* scenario;
    bool fold;
    std::int64_t micro_batches;  // 0: as in the scenario
  };
  const auto run = [](const Size& size) {
    return measure_child<double>([&] {
      Job job = load_scenario(data_folder() + "/scenarios/" + size.scenario + ".yaml").job;
      job.fidelity.fold = size.fold;
      if (size.micro_batches > 0)
        job = with_batch(job, size.micro_batches * job.train.micro_batch * job.strategy.dp());
      const Program program = compile(job);
      double announced = 0;
      SimOptions options;
      options.announce = [&](const MemoryNeed& need) {
        if (need.bytes < announced) _exit(1);  // what is said first is a part of what is said last
        announced = need.bytes;
      };
      const Trace trace = simulate(job, program, options);
      if (make_report(job, program, trace).iteration_s <= 0) _exit(1);
      return announced;
    });
  };
  const Measured small = run({"quickstart", true, 0});  // what a process takes whatever it simulates
  for (const Size& size : {Size{"gpt3-175b-1024", false, 16}, Size{"gpt3-175b-1024", false, 64},
                           Size{"gpt3-175b-16384", true, 8}, Size{"mixed-100k", true, 0}}) {
    const Measured large = run(size);
    const double need = large.answer - small.answer, took = large.peak_bytes - small.peak_bytes;
    CAPTURE(size.scenario, size.fold, size.micro_batches, need, took);
    CHECK(need < 1.5 * took);
    CHECK(took < 1.5 * need);
  }
}
