// The attribution of a step: the table of `motley simulate` and the path of `motley explain` say the same, and advice
// that was simulated is as good as it says.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "models/compile/compile.hpp"
#include "models/explain/advice.hpp"
#include "models/explain/path_parts.hpp"
#include "models/plan/changes.hpp"
#include "models/scenario/scenario.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr double kAgrees = 0.01;  // share of the step
constexpr unsigned kJobs = kSanitized ? 20 : 200, kAdvised = kSanitized ? 3 : 30;

Trace simulated_step(const Job& job, const Program& program) { return simulate_in_child(job, program); }

Scenario scenario_of(const std::string& text) {
  return read_scenario(parse_yaml(text, "scenario"), "scenario.yaml");
}

// The column of the table to which a part of the path belongs.
Purpose column_of(const PathPart& part) {
  if (part.recompute) return Purpose::recompute;
  switch (part.spent) {
    case Spent::matmul:
    case Spent::attention:
    case Spent::memory:
    case Spent::launch:
    case Spent::waiting:
      return Purpose::compute;
    case Spent::tensor_parallel:
      return Purpose::tensor_parallel;
    case Spent::expert_parallel:
      return Purpose::expert_parallel;
    case Spent::context_parallel:
      return Purpose::context_parallel;
    case Spent::pipeline:
      return Purpose::pipeline;
    case Spent::data_parallel:
    case Spent::tied_embedding:
      return Purpose::data_parallel;
    case Spent::optimizer:
      return Purpose::optimizer;
    case Spent::offload:
      return Purpose::offload;
  }
  return Purpose::compute;
}

double work_s(const Breakdown& row) {
  return row.compute_s + row.recompute_s + row.tensor_parallel_s + row.expert_parallel_s +
         row.context_parallel_s + row.optimizer_s;
}

// Returns whether the job was checked: with sanitizers, large ones take too long.
bool check_agreement(const Job& job) {
  const Program program = compile(job);
  if (kSanitized && program.ranks.size() > 4096) return false;
  const Trace trace = simulated_step(job, program);
  const Report report = make_report(job, program, trace);
  const double step_s = report.iteration_s;
  Breakdown explained;
  for (const PathPart& part : path_parts(job, program, trace)) explained[column_of(part)] += part.seconds;
  for (int i = 0; i < kPurposes; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    CAPTURE(i);
    CHECK(std::abs(explained[purpose] - report.critical_path[purpose]) <= kAgrees * step_s);
  }
  for (const StageBreakdown& row : report.breakdown) {
    CAPTURE(row.stage, row.rank);
    CHECK(row.sum_s() == Approx(step_s).epsilon(1e-9));
    // What a row waits for is on the path. A row that works more than the path does hides a part of its wires.
    const bool hides = work_s(row) > work_s(explained) + kAgrees * step_s;
    for (const Purpose wire : {Purpose::pipeline, Purpose::data_parallel, Purpose::offload}) {
      CHECK(row[wire] <= explained[wire] + kAgrees * step_s);
      if (!hides) CHECK(row[wire] >= explained[wire] - kAgrees * step_s);
    }
    if (!hides)
      CHECK(work_s(row) + row.bubble_s + row.waiting_s == Approx(work_s(explained)).margin(kAgrees * step_s));
    if (job.strategy.templates.size() == 1 && job.strategy.pp() == 1) CHECK(row.bubble_s == 0);
  }
  CHECK(report.all_chips.sum_s() == Approx(step_s).epsilon(1e-9));
  for (const StageWait& wait : report.waits) {
    CHECK(wait.slower != wait.rank);
    CHECK(wait.for_slower_s <= wait.waiting_s);
    CHECK(wait.waiting_s <= step_s);
  }
  return true;
}

}  // namespace

TEST_CASE("what the table says of random jobs is what explain says of their critical path") {
  unsigned checked = 0;
  for (unsigned seed = 7300; checked < kJobs; ++seed) {
    const Job job = any_job(seed);
    CAPTURE(seed);
    INFO(written_out(job));
    checked += check_agreement(job);
    REQUIRE(seed < 7300 + 2 * kJobs);
  }
}

TEST_CASE("what the table says of every scenario is what explain says of its critical path", "[slow]") {
  int scenarios = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(MOTLEY_SOURCE_DIR) + "/scenarios")) {
    if (file.path().extension() != ".yaml") continue;
    CAPTURE(file.path().string());
    const std::string path = file.path().string();
    Scenario scenario = read_scenario(read_yaml(path), path, ScenarioUse::plan);
    if (scenario.job.strategy.templates.empty()) continue;  // it leaves its strategy to the planner
    scenario.job.fidelity.fold = true;
    scenarios += check_agreement(scenario.job);
  }
  CHECK(scenarios > 10);
}

TEST_CASE("advice that is given for random jobs makes the step as short as it says") {
  int given = 0;
  for (unsigned seed = 7600; seed < 7600 + kAdvised; ++seed) {
    const Job job = any_job(seed);
    CAPTURE(seed);
    INFO(written_out(job));
    const Program program = compile(job);
    const Report report = make_report(job, program, simulated_step(job, program));
    const Advice advice = advise(job, report, simulated_step);
    if (advice.change.empty()) continue;
    ++given;
    const std::vector<Change> all = changes(job, report);
    const auto change =
        std::find_if(all.begin(), all.end(), [&](const Change& each) { return each.what == advice.change; });
    REQUIRE(change != all.end());
    const Job advised = moved(job, change->move);
    const double step_s = duration_s(simulated_step(advised, compile(advised)));
    CHECK(step_s == Approx(advice.step_s).epsilon(1e-9));
    CHECK(step_s < report.iteration_s);
  }
  CHECK((kSanitized || given > 5));
}

TEST_CASE(
    "a slow node that holds up its data-parallel group is named, and none of it is the pipeline's bubble") {
  const Scenario scenario = scenario_of(R"(
model: llama-2-7b
cluster:
  groups:
    - {name: fast, nodes: 3, chip: a100-80gb-sxm, chips_per_node: 8,
       inside: {fabric: nvswitch, bandwidth: 300 GB/s, latency: 2 us},
       nics: [{kind: infiniband, count: 8, bandwidth: 200 Gb/s, latency: 5 us}]}
    - {name: slow, nodes: 1, chip: v100-32gb-sxm, chips_per_node: 8,
       inside: {fabric: nvswitch, bandwidth: 150 GB/s, latency: 2 us},
       nics: [{kind: infiniband, count: 8, bandwidth: 200 Gb/s, latency: 5 us}]}
  links: [{between: [fast, slow], over: infiniband}]
train: {global_batch: 64, sequence: 2048, precision: fp16}
strategy: {tp: 8, dp: 4, zero: 1, overlap: {bucket_bytes: 100 MB, gradients: true}}
)");
  Job job = scenario.job;
  job.fidelity.fold = true;
  const Program program = compile(job);
  const Report report = make_report(job, program, simulated_step(job, program));
  REQUIRE(report.breakdown.size() == 1);
  CHECK(report.breakdown[0].rank == 24_rank);
  CHECK(report.breakdown[0].on.group == "slow");
  CHECK(report.breakdown[0].bubble_s == 0);
  CHECK(report.breakdown[0].waiting_s < 1e-3 * report.iteration_s);
  CHECK(report.all_chips.bubble_s == 0);
  CHECK(bound_by(report) == Purpose::waiting);
  REQUIRE(report.waits.size() == 1);
  CHECK(report.waits[0].on.chip == "a100-80gb-sxm");
  CHECK(report.waits[0].slower == 24_rank);
  CHECK(report.waits[0].slower_on.chip == "v100-32gb-sxm");
  CHECK(report.waits[0].waiting_s > 0.4 * report.iteration_s);
  const std::string text = to_text(report);
  CHECK(text.find("waiting for slower") != std::string::npos);
  CHECK(text.find("longest for rank 24 (stage 0, slow, v100-32gb-sxm)") != std::string::npos);
}

TEST_CASE("parameters that are gathered after the optimizer are data parallelism's, not a bubble") {
  const Scenario scenario = scenario_of(R"(
model: {name: gpt-1.3b, family: gpt2, vocabulary: 51200, hidden: 2048, layers: 24, heads: 16, max_positions: 2048,
        source: x}
cluster: holmes-ethernet-4
train: {global_batch: 128, micro_batch: 1, sequence: 2048, precision: bf16}
strategy: {dp: 32, zero: 1}
)");
  const Program program = compile(scenario.job);
  const Report report = make_report(scenario.job, program, simulated_step(scenario.job, program));
  CHECK(report.breakdown.at(0).bubble_s == 0);
  CHECK(report.breakdown[0].data_parallel_s > 0.85 * report.iteration_s);
  CHECK(report.breakdown[0].data_parallel_s == Approx(report.critical_path.data_parallel_s));
}

TEST_CASE(
    "stages that wait for another stage's gradients and parameters wait for data parallelism, not in a "
    "bubble") {
  Job job = tiny_job({1, 2, 2});
  job.strategy.zero = 3;
  for (NodeGroup& group : job.cluster.groups) group.inside.bandwidth /= 1000;
  build_topology(job.cluster);
  const Program program = compile(job);
  const Report report = make_report(job, program, simulated_step(job, program));
  CHECK(bound_by(report) == Purpose::data_parallel);
  CHECK(report.all_chips.bubble_s < 0.02 * report.iteration_s);
}
