// Out of memory: what is proposed must really fit.
#include <catch2/catch.hpp>

#include "models/check.hpp"
#include "models/refusal.hpp"
#include "models/remedies.hpp"
#include "models/scenario.hpp"
#include "tests/models/tiny_job.hpp"

using namespace motley;

TEST_CASE("what is said to fit fits, and what is not does not") {
  Job job = tests::tiny_job({1, 1, 2}, Family::llama);
  const auto peak_of = [](const Job& of) { return memory_by_stage(compile(of), of.cluster).at(0).peak; };
  Job divided = job;
  divided.strategy.zero = 1;
  // Room for the divided states and nothing more.
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

TEST_CASE("where nothing fits the nearest is named") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  job.cluster.groups[0].chip.memory_bytes.value = 1000;
  build_topology(job.cluster);
  const std::string hint = describe(remedies(job));
  CHECK(hint.find("nearest is `recompute: full`") != std::string::npos);
  CHECK(hint.find("more chips would help") != std::string::npos);
}
