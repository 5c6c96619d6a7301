// Plans that must keep pins: whatever the pins are, the plan keeps them on its Program, or there is none.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/pins.hpp"
#include "models/plan/planner.hpp"
#include "models/scenario/plan_request_check.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/priced_jobs.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

const Judge judge_pinned = simulating_judge(false);

// One or two pins of what the job's own strategy has, or of something near it.
PlanPins any_pins(const Job& job, Dice& dice) {
  PlanPins pins;
  const std::string group = job.cluster.groups.front().name, last = job.cluster.groups.back().name;
  for (int i = 0; i < 2; ++i) switch (dice.one_of({0, 1, 2, 3, 4, 5, 6})) {
      case 0:
        pins.groups = {dice.one_of({group, last})};
        break;
      case 1:
        pins.tensor_parallel = {{dice.one_of({std::string(), group}), dice.one_of({1, 2})}};
        break;
      case 2:
        pins.pipeline_parallel = dice.one_of({1, 2, 3});
        break;
      case 3:
        pins.data_parallel = dice.one_of({1, 2});
        break;
      case 4:
        pins.micro_batch = dice.one_of({1, 2});
        break;
      case 5:
        pins.most_stages = dice.one_of({1, 2, 3});
        break;
      default:
        if (group != last) pins.forbidden_links = {{group, last}};
    }
  return pins;
}

// A legal pipeline of two stages, one on each group of two.
Job two_stages() {
  const char* const text =
      "model: tiny-gpt2\n"
      "cluster:\n"
      "  groups:\n"
      "    - {name: a, nodes: 2, chip: host-core, chips_per_node: 2, inside: {fabric: loopback, bandwidth: 1 "
      "GB/s, "
      "latency: 1 us}, nics: [{kind: ethernet, count: 1, bandwidth: 10 Gb/s, latency: 5 us}]}\n"
      "    - {name: b, nodes: 2, chip: host-core, chips_per_node: 2, inside: {fabric: loopback, bandwidth: 1 "
      "GB/s, "
      "latency: 1 us}, nics: [{kind: ethernet, count: 1, bandwidth: 10 Gb/s, latency: 5 us}]}\n"
      "  links: [{between: [a, b], over: ethernet}]\n"
      "train: {global_batch: 8, sequence: 16, precision: fp32, micro_batch: 2}\n"
      "strategy: {templates: [{replicas: 2, micro_batches: 2, stages: [{layers: 0-1, on: a}, {layers: 2-3, "
      "tp: 2, on: "
      "b}]}]}\n";
  return read_scenario(parse_yaml(text, "two.yaml"), "two.yaml").job;
}

}  // namespace

TEST_CASE("a plan keeps every pin, or there is none", "[plan][slow]") {
  int planned = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 6 : 40); ++seed) {
    Dice dice(seed);
    Job job = priced_job(seed);
    job.strategy = {};
    PlanLimits limits;
    limits.evaluations = 12;
    limits.pins = any_pins(job, dice);
    PlanRequest request;
    request.pins = limits.pins;
    CAPTURE(seed);
    try {
      check_request(request, {}, job);
      const Plan best = plan(job, judge_pinned, limits);
      ++planned;
      const auto broken = find_broken_pin(limits.pins, best.job, compile(best.job));
      CHECK(broken.value_or("") == "");
      CHECK(best.bound_s <= best.simulated_s);
    } catch (const Refusal&) {  // pins need not fit the job
    }
  }
  CHECK(planned > (kSanitized ? 2 : 30));
}

TEST_CASE("each pin that a strategy breaks is found on its Program, and none that it keeps", "[plan]") {
  const Job job = two_stages();
  const Program program = compile(job);
  const auto broken = [&](auto&& set) {
    PlanPins pins;
    set(pins);
    return find_broken_pin(pins, job, program).value_or("");
  };
  CHECK(broken([](PlanPins&) {}) == "");
  CHECK(broken([](PlanPins& pins) { pins.groups = {"b", "a"}; }) == "");
  CHECK(broken([](PlanPins& pins) { pins.groups = {"b"}; }) == "pin `groups: [b]`: the plan stands on a, b");
  CHECK(broken([](PlanPins& pins) { pins.tensor_parallel = {{"a", 1}, {"b", 2}}; }) == "");
  CHECK(broken([](PlanPins& pins) {
          pins.tensor_parallel = {{"", 2}};
        }) == "pin `tp: 2`: a stage on `a` has tp 1");
  CHECK(broken([](PlanPins& pins) { pins.pipeline_parallel = 2; }) == "");
  CHECK(broken([](PlanPins& pins) { pins.pipeline_parallel = 3; }) == "pin `pp: 3`: the plan has 2 stages");
  CHECK(broken([](PlanPins& pins) { pins.data_parallel = 2; }) == "");
  CHECK(broken([](PlanPins& pins) { pins.data_parallel = 4; }) == "pin `dp: 4`: the plan has 2 replicas");
  CHECK(broken([](PlanPins& pins) { pins.micro_batch = 2; }) == "");
  CHECK(broken([](PlanPins& pins) { pins.micro_batch = 1; }) ==
        "pin `micro_batch: 1`: the plan has 2 sequences");
  CHECK(broken([](PlanPins& pins) { pins.most_stages = 2; }) == "");
  CHECK(broken([](PlanPins& pins) { pins.most_stages = 1; }) ==
        "pin `most_stages: 1`: the plan has 2 stages");
  CHECK(broken([](PlanPins& pins) {
          pins.forbidden_links = {{"b", "a"}};
        }) == "pin `forbidden_links`: bytes go between `a` and `b`");
}
