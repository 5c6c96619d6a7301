// FlagScale's YAML out and in: process meshes of unlike degrees come back as the stages that they were.
#include <catch2/catch.hpp>
#include <set>

#include "models/frameworks/export.hpp"
#include "models/frameworks/import.hpp"
#include "models/frameworks/megatron_settings.hpp"
#include "models/transformer/train_text.hpp"
#include "tests/models/frameworks/random_strategies.hpp"

using namespace motley;

namespace {

// A strategy in which every stage says how it recomputes: a file by stage and one for all then mean the same.
Strategy by_stage(Strategy strategy) {
  for (PipelineTemplate& pipeline : strategy.templates)
    for (Stage& stage : pipeline.stages) stage.recompute = recompute_of(strategy, stage).what;
  strategy.recompute = Recompute::none;
  return strategy;
}

}  // namespace

TEST_CASE("FlagScale's meshes of a thousand random jobs are imported as the same jobs") {
  const Cluster cluster = tests::unlike_cluster();
  ImportOptions options{.name = "random", .cluster = "unlike", .chips = cluster.chip_count()};
  for (const NodeGroup& group : cluster.groups) options.groups.emplace_back(group.name, group.chip.name);
  std::set<std::string> strategies;
  int unlike = 0;
  for (unsigned seed = 0; seed < 1000; ++seed) {
    Job job = tests::flagscale_job(seed);
    job.cluster = cluster;
    INFO("seed " << seed << "\n" << print(job.strategy) << print(job.transformer));
    const Export exported = export_job("random", job, ExportTarget::flagscale);
    INFO(exported.files.at(0).text);
    const Imported imported =
        import_text(ImportSource::flagscale, exported.files[0].text, "train.yaml", options);
    REQUIRE(print(by_stage(imported.strategy)) == print(by_stage(job.strategy)));
    REQUIRE(by_stage(imported.strategy) == by_stage(job.strategy));
    Transformer transformer = imported.transformer;
    transformer.source = job.transformer.source;
    REQUIRE(print(transformer) == print(job.transformer));
    REQUIRE(print(imported.train) == print(job.train));
    strategies.insert(print(job.strategy));
    const std::vector<Stage>& stages = job.strategy.templates[0].stages;
    if (stages.front().tensor_parallel != stages.back().tensor_parallel) ++unlike;
  }
  CHECK(strategies.size() > 500);
  CHECK(unlike > 30);
}
