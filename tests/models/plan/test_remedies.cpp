// Out of memory: every proposed change must really fit.
#include <algorithm>
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/planned_recomputes.hpp"
#include "models/plan/remedies.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

TEST_CASE("what is said to fit fits, and what is not does not") {
  Job job = tests::tiny_job({1, 1, 2}, Family::llama);
  const auto peak_of = [](const Job& each) {
    return memory_by_stage(compile(each), each.cluster).at(0).peak;
  };
  Job divided = job;
  divided.strategy.zero = 1;
  // There is room for exactly the divided states.
  job.cluster.groups[0].chip.memory_bytes.value = static_cast<double>(peak_of(divided));
  build_topology(job.cluster);
  REQUIRE_THROWS_AS(check(compile(job), job.cluster), Refusal);
  const auto tried = remedies(job);
  REQUIRE_FALSE(tried.empty());
  CHECK(tried[0].change == "zero: 1");
  CHECK(tried[0].fits());
  CHECK(tried[0].peak == peak_of(divided));
  divided.cluster = job.cluster;
  CHECK_NOTHROW(check(compile(divided), divided.cluster));
  CHECK(describe(tried).rfind("`zero: 1` fits with", 0) == 0);
}

TEST_CASE("where gradients of weights are put off too far, putting off fewer is the mildest change") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  job.transformer.layers = 8;
  job.cluster = tests::tiny_cluster(8);
  job.train.global_batch = 16;
  job.strategy = expand(job.transformer, job.train, 2, 4, 1);
  job.strategy.sequence_parallel = true;  // weights' gradients read gathered inputs
  use_schedule(job.transformer, job.strategy, Schedule::zb_v, standard_chunks(Schedule::zb_v));
  const auto peak_of = [](const Job& each) {
    std::int64_t most = 0;
    for (const StageMemory& stage : memory_by_stage(compile(each), each.cluster))
      most = std::max(most, stage.peak);
    return most;
  };
  Job sparing = job;
  sparing.strategy.put_off = PutOff::memory;
  REQUIRE(peak_of(sparing) < peak_of(job));
  for (NodeGroup& group : job.cluster.groups)
    group.chip.memory_bytes.value = static_cast<double>(peak_of(sparing));
  build_topology(job.cluster);
  REQUIRE_THROWS_AS(check(compile(job), job.cluster), Refusal);
  const std::vector<Remedy> tried = remedies(job);
  REQUIRE_FALSE(tried.empty());
  CHECK(tried[0].change == "put_off: memory");
  CHECK(tried[0].fits());
  CHECK(tried[0].peak == peak_of(sparing));
}

TEST_CASE("few modules that are computed again are milder than whole layers, where nothing is yet") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  const auto peak_of = [](const Job& each) {
    return memory_by_stage(compile(each), each.cluster).at(0).peak;
  };
  Job sparing = job;
  sparing.strategy.recompute = planned_recomputes(job.transformer).at(1);
  REQUIRE(peak_of(sparing) < peak_of(job));
  job.cluster.groups[0].chip.memory_bytes.value = static_cast<double>(peak_of(sparing));
  build_topology(job.cluster);
  const std::vector<Remedy> tried = remedies(job);
  REQUIRE_FALSE(tried.empty());
  CHECK(tried[0].change == "recompute: [norms, activation]");
  CHECK(tried[0].fits());
  job.strategy.recompute = Recompute::selective;  // other modules may cost more memory than attention
  for (const Remedy& remedy : remedies(job)) CHECK(remedy.change.find("[norms") == std::string::npos);
}

TEST_CASE("where nothing fits the nearest is named") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  job.cluster.groups[0].chip.memory_bytes.value = 1000;
  build_topology(job.cluster);
  const std::string hint = describe(remedies(job));
  CHECK(hint.find("nearest is `recompute: full`") != std::string::npos);
  CHECK(hint.find("more chips would help") != std::string::npos);
}

TEST_CASE("the mildest changes are tried first, then larger degrees with the same changes") {
  Job job = tests::tiny_job({1, 1, 2}, Family::llama);
  job.cluster = tests::with_hosts(tests::tiny_cluster(2));
  job.strategy.zero = 1;
  job.cluster.groups[0].chip.memory_bytes.value = 1;
  build_topology(job.cluster);
  const std::vector<std::string> same_degrees = {
      "zero: 2",
      "zero: 3",
      "recompute: full",
      "zero: 2 and recompute: full",
      "zero: 3 and recompute: full",
      "offload: {optimizer: 1}",
      "offload: {optimizer: 1} and recompute: full",
      "offload: {optimizer: 1, activations: 1} and recompute: full"};
  std::vector<std::string> expected = same_degrees, tried;
  expected.insert(std::find(expected.begin(), expected.end(), "recompute: full"),
                  {"recompute: [norms, activation]", "recompute: [norms, inner, activation]"});
  expected.emplace_back("micro_batch: 1");
  // A single replica cannot divide its states.
  for (const std::string degrees :
       {"pipeline_parallel: 2, data_parallel: 1", "tensor_parallel: 2, data_parallel: 1"}) {
    expected.push_back(degrees);
    if (degrees[0] == 't') expected.push_back(degrees + ", sequence_parallel: true");
    for (const std::string& change : same_degrees)
      if (change.find("zero") == std::string::npos) expected.push_back(degrees + ", " + change);
  }
  for (const Remedy& remedy : remedies(job)) tried.push_back(remedy.change);
  CHECK(tried == expected);
}
