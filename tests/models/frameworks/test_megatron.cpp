// Megatron-LM out and in: an export that is imported again is the strategy that was exported.
#include <catch2/catch.hpp>
#include <set>

#include "models/cluster/cluster.hpp"
#include "models/frameworks/export.hpp"
#include "models/frameworks/import.hpp"
#include "models/scenario/scenario.hpp"
#include "models/transformer/train_text.hpp"
#include "tests/models/frameworks/random_strategies.hpp"

using namespace motley;

namespace {

constexpr unsigned kJobs = 1000;

}  // namespace

TEST_CASE("Megatron-LM's arguments of a thousand random jobs are imported as the same jobs") {
  Cluster cluster = load_cluster("dgx-h100-pod");
  cluster.groups[0].host =
      Host{.memory = 1e12, .memory_bandwidth = 200e9, .link = 25e9};  // some jobs offload
  build_topology(cluster);
  std::set<std::string> strategies;
  for (unsigned seed = 0; seed < kJobs; ++seed) {
    Job job = tests::megatron_job(seed);
    job.cluster = cluster;
    INFO("seed " << seed << "\n" << print(job.strategy) << print(job.transformer));
    const Export exported = export_job("random", job, ExportTarget::megatron_lm);
    INFO(exported.files.at(0).text);
    const Imported imported =
        import_text(ImportSource::megatron_lm, exported.files[0].text, "megatron-lm.sh",
                    {.name = "random", .cluster = "dgx-h100-pod", .chips = cluster.chip_count()});
    REQUIRE(print(imported.strategy) == print(job.strategy));
    REQUIRE(imported.strategy == job.strategy);
    Transformer transformer = imported.transformer;
    transformer.source = job.transformer.source;
    REQUIRE(print(transformer) == print(job.transformer));
    REQUIRE(print(imported.train) == print(job.train));
    strategies.insert(print(job.strategy));
    if (seed % 20 != 0) continue;  // reading a scenario takes longer, and the same code reads every scenario
    const Scenario scenario = read_scenario(
        parse_yaml(print_scenario(imported, ImportSource::megatron_lm), "imported.yaml"), "imported.yaml");
    REQUIRE(scenario.job.strategy == job.strategy);
    REQUIRE(print(scenario.job.train) == print(job.train));
    REQUIRE(print(scenario.job.transformer) == print(imported.transformer));
  }
  CHECK(strategies.size() > kJobs / 2);
}
