// Scenarios from files: what ships reads whole, and what is refused later still knows its place.
#include <catch2/catch.hpp>

#include "models/scenario.hpp"

using namespace motley;

namespace {

const std::string kRoot = MOTLEY_SOURCE_DIR;

}  // namespace

TEST_CASE("every scenario that ships is read, and its strategy is legal and fits its cluster") {
  const std::string name = GENERATE(as<std::string>(), "quickstart", "quickstart-train", "gpt3-175b-1024");
  INFO(name);
  const Scenario scenario = load_scenario(kRoot + "/scenarios/" + name + ".yaml");
  CHECK(scenario.name == name);
  const Job& job = scenario.job;
  CHECK_NOTHROW(validate(job.transformer, job.train, job.strategy));
  CHECK(job.strategy.rank_count() <= job.cluster.chip_count());
  CHECK(job.train.global_batch ==
        job.strategy.dp() * job.strategy.templates[0].micro_batches * job.train.micro_batch);
  CHECK(scenario.strategy_location.file == scenario.path);
  CHECK(scenario.strategy_location.line > scenario.cluster_location.line);
  CHECK(scenario.cluster_location.line == scenario.model_location.line + 1);
}

TEST_CASE("the fixed scenarios are the ones that others compare with") {
  const Scenario gpt3 = load_scenario(kRoot + "/scenarios/gpt3-175b-1024.yaml");
  CHECK(gpt3.job.cluster.chip_count() == 1024);
  CHECK(gpt3.job.cluster.chip_of(0).name == "a100-80gb-sxm");
  CHECK(gpt3.job.strategy.tp() == 8);
  CHECK(gpt3.job.strategy.pp() == 8);
  CHECK(gpt3.job.strategy.dp() == 16);
  CHECK(gpt3.job.strategy.recompute == Recompute::full);
  CHECK(gpt3.job.strategy.templates[0].micro_batches == 128);
  CHECK(gpt3.job.train.sequence == 2048);
  CHECK(gpt3.job.train.precision == Format::bf16);
  const Scenario train = load_scenario(kRoot + "/scenarios/quickstart-train.yaml");
  CHECK(train.job.strategy.rank_count() == 2);
  CHECK(train.job.train.steps == 50);
  CHECK(train.job.train.precision == Format::fp32);
  CHECK(train.world.kind == "real");
}

TEST_CASE("a refusal without a place gets one, and one that has a place keeps it") {
  const Refusal placeless(Exit::infeasible, "out-of-memory", {}, "too large", "less");
  const Refusal placed = located(placeless, {"a.yaml", 4, 2});
  CHECK(std::string(placed.what()) == "a.yaml:4:2: too large\n  hint: less");
  CHECK(placed.kind() == "out-of-memory");
  CHECK(placed.exit_code() == Exit::infeasible);
  CHECK(std::string(located(placed, {"b.yaml", 9, 9}).what()) == placed.what());
}

TEST_CASE("a refusal cannot steer the terminal that shows it") {
  const Refusal refusal(Exit::usage, "unknown-key", {"a\x1b]0;b\x07.yaml", 1, 1}, "key `\x1b[31m` \x7f",
                        "\r");
  CHECK(std::string(refusal.what()) == "a\\x1b]0;b\\x07.yaml:1:1: key `\\x1b[31m` \\x7f\n  hint: \\x0d");
}
