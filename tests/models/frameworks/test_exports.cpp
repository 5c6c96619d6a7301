// Golden text: every file of every export, word for word. MOTLEY_REWRITE=1 in the environment writes the files again;
// `git diff` then shows, line by line, what has changed. And laws of the files that start ranks.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "models/compile/compile.hpp"
#include "models/frameworks/export.hpp"
#include "models/frameworks/rank_map.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/models/frameworks/random_strategies.hpp"
#include "tests/support/random_jobs.hpp"

using namespace motley;

namespace {

// Eight layers on two unlike groups, the faster with more of them.
const char* const kUnlike = R"(
name: unlike
model: llama-3-8b
cluster: hethub-pair-nvidia-amd
train: {global_batch: 32, sequence: 4096, steps: 100}
strategy:
  sequence_parallel: true
  zero: 1
  overlap: {p2p: false, gradients: true}
  templates:
    - replicas: 4
      micro_batches: 8
      stages:
        - {layers: 0-13, tp: 8, on: [nvidia]}
        - {layers: 14-21, tp: 4, on: [amd], recompute: full}
        - {layers: 22-31, tp: 4, on: [amd]}
)";
const char* const kInterleaved = R"(
name: interleaved
model: mixtral-8x7b
cluster: dgx-h100-pod
train: {global_batch: 64, sequence: 4096, steps: 100}
strategy: {tp: 2, pp: 4, dp: 4, ep: 8, etp: 1, schedule: interleaved, virtual_stages: 2, sequence_parallel: true,
           zero: 1, overlap: {gradients: true, parameters: true}, expert_weights: activation, recompute: selective}
)";
const char* const kZeroBubble = R"(
name: zero-bubble
model: llama-3-8b
cluster: dgx-a100-4
train: {global_batch: 32, sequence: 4096, steps: 100}
strategy: {tp: 4, pp: 2, dp: 4, schedule: zb-v, sequence_parallel: true, zero: 3, reduce_gradients: last,
           overlap: {gradients: true}, recompute: full}
)";
const char* const kSharded = R"(
name: sharded
model: llama-3-8b
cluster: dgx-a100-4
train: {global_batch: 128, sequence: 4096, steps: 100}
strategy: {tp: 2, dp: 16, zero: 3, overlap: {gradients: true}}
)";
// Pipelines that begin on one node and end on another, which no order of hosts gives.
const char* const kScattered = R"(
name: scattered
model: tiny-gpt2
cluster: dgx-a100-4
train: {global_batch: 8, sequence: 64}
strategy:
  templates:
    - {replicas: 1, micro_batches: 4, stages: [{layers: 0-1, tp: 4}, {layers: 2-3, tp: 2}]}
    - {replicas: 1, micro_batches: 4, stages: [{layers: 0-1, tp: 1}, {layers: 2-3, tp: 1}]}
)";

Scenario scenario_of(const char* text) {
  return read_scenario(parse_yaml(text, "golden.yaml"), "golden.yaml");
}

void check_golden(const char* text, ExportTarget target) {
  const Scenario scenario = scenario_of(text);
  const Export exported = export_job(scenario.name, scenario.job, target);
  REQUIRE_FALSE(exported.files.empty());
  for (const ExportedFile& file : exported.files) {
    const std::string path = std::string(MOTLEY_SOURCE_DIR) + "/tests/models/frameworks/golden/" +
                             scenario.name + "." + std::string(name_of(target)) + "." + file.name + ".golden";
    if (std::getenv("MOTLEY_REWRITE") != nullptr) std::ofstream(path) << file.text;
    std::stringstream expected;
    expected << std::ifstream(path).rdbuf();
    INFO(path);
    REQUIRE(expected.str() == file.text);
  }
}

}  // namespace

TEST_CASE("exports to the frameworks that train are the golden text") {
  check_golden(kInterleaved, ExportTarget::megatron_lm);
  check_golden(kInterleaved, ExportTarget::megatron_bridge);
  check_golden(kUnlike, ExportTarget::flagscale);
  check_golden(kZeroBubble, ExportTarget::torchtitan);
  check_golden(kSharded, ExportTarget::torchtitan);
  check_golden(kSharded, ExportTarget::deepspeed);
}

TEST_CASE("the files that start ranks are the golden text") {
  for (const ExportTarget target : {ExportTarget::torchrun, ExportTarget::sbatch, ExportTarget::mpirun,
                                    ExportTarget::hostfile, ExportTarget::rank_map})
    check_golden(kUnlike, target);
}

TEST_CASE("every export names its target's version") {
  const std::map<ExportTarget, const char*> scenarios = {{ExportTarget::flagscale, kUnlike},
                                                         {ExportTarget::torchtitan, kZeroBubble},
                                                         {ExportTarget::deepspeed, kSharded}};
  for (const ExportTarget target : every<ExportTarget>()) {
    const auto own = scenarios.find(target);
    const Scenario scenario = scenario_of(own == scenarios.end() ? kInterleaved : own->second);
    const Export exported = export_job(scenario.name, scenario.job, target);
    CHECK(exported.files[0].text.find(version_of(target).text()) != std::string::npos);
  }
}

TEST_CASE("the order of hosts in a hostfile gives each rank the chip that its Program gives it") {
  int in_order = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Job job = tests::flagscale_job(seed);
    job.cluster = tests::unlike_cluster();
    const RankMap map = map_ranks(job);
    const Program program = compile(job);
    REQUIRE(map.ranks.size() == program.ranks.size());
    if (map.out_of_order) continue;
    ++in_order;
    std::size_t rank = 0;
    for (const HostOfRanks& host : map.hosts)
      for (std::size_t local = 0; local < host.ranks.size(); ++local, ++rank) {
        const int chip = program.ranks[Rank(rank)].chip;
        const GroupLayout& layout =
            job.cluster
                .layout[static_cast<std::size_t>(job.cluster.chip_group[static_cast<std::size_t>(chip)])];
        const std::string& group =
            job.cluster
                .groups[static_cast<std::size_t>(job.cluster.chip_group[static_cast<std::size_t>(chip)])]
                .name;
        REQUIRE(host.name == group + "-" + std::to_string((chip - layout.first_chip) / 8));
        REQUIRE(static_cast<std::size_t>((chip - layout.first_chip) % 8) == local);
      }
    REQUIRE(rank == map.ranks.size());
  }
  CHECK(in_order > 30);
}

TEST_CASE("a job that a target exports is its own copy: the same job gives the same bytes") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Job job = tests::flagscale_job(seed);
    job.cluster = tests::unlike_cluster();
    const Export once = export_job("a", job, ExportTarget::flagscale),
                 again = export_job("a", job, ExportTarget::flagscale);
    for (std::size_t i = 0; i < once.files.size(); ++i) REQUIRE(once.files[i].text == again.files[i].text);
  }
}

TEST_CASE("any random job is exported or refused by a key") {
  for (unsigned seed = 0; seed < 100; ++seed) {
    const Job job = tests::any_job(seed);
    for (const ExportTarget target : every<ExportTarget>()) {
      INFO("seed " << seed << " to " << name_of(target));
      try {
        const Export exported = export_job("any", job, target);
        CHECK_FALSE(exported.files.empty());
      } catch (const Refusal& refusal) {
        CHECK(refusal.kind() == "inexpressible");
        CHECK(refusal.message().starts_with("`"));
      }
    }
  }
}

TEST_CASE("ranks that no order of hosts places get a rankfile and a host for each task") {
  const Scenario scenario = scenario_of(kScattered);
  CHECK_FALSE(map_ranks(scenario.job).out_of_order);  // one node holds them all
  CHECK(export_job("a", scenario.job, ExportTarget::sbatch).files.size() == 2);
}
