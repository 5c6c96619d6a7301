// Published plans that print their stages one by one.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "models/published/published_run.hpp"
#include "models/published/published_stages.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

TEST_CASE("layers by stage are read, embedding and head counted") {
  const auto layers = layers_per_stage("seconds; layers per stage 2/1/3; layer count includes");
  REQUIRE(layers.has_value());
  CHECK(*layers == std::vector<std::int64_t>{2, 1, 3});
  Strategy strategy = tiny_job({1, 3, 1}).strategy;  // it has 4 layers
  REQUIRE(set_layers(*layers, tiny_transformer(), strategy));
  const auto& stages = strategy.templates[0].stages;
  CHECK(stages[0].first_layer == 0);
  CHECK(stages[0].last_layer == 1);
  CHECK(stages[1].last_layer == 2);
  CHECK(stages[2].first_layer == 2);
  CHECK(stages[2].last_layer == 4);
}

TEST_CASE("layers that are not the model's, or leave a stage none, are not taken") {
  Strategy strategy = tiny_job({1, 2, 1}).strategy;
  const Strategy before = strategy;
  CHECK_FALSE(set_layers({3, 2}, tiny_transformer(), strategy));
  CHECK_FALSE(set_layers({2, 2, 2}, tiny_transformer(), strategy));
  // The first stage would have only the embedding.
  CHECK_FALSE(set_layers({1, 5}, tiny_transformer(), strategy));
  CHECK_FALSE(set_layers({5, 1}, tiny_transformer(), strategy));
  CHECK(strategy == before);
  CHECK_FALSE(layers_per_stage("nothing of the kind").has_value());
}

TEST_CASE("a stage map says by stage and replica where it stands") {
  const auto map = stage_map("x; stage map: RTX-3090(tp8)+RTX-2080(tp8) | Titan-RTX(tp8)+RTX-2080(tp8); y");
  REQUIRE(map.has_value());
  REQUIRE(map->size() == 2);
  CHECK((*map)[0] == std::vector<StagePlace>{{"RTX-3090", 8}, {"RTX-2080", 8}});
  const auto pipelines = pipelines_of(*map, 64);
  REQUIRE(pipelines.size() == 1);
  CHECK(pipelines[0].replicas == 2);
  CHECK(pipelines[0].micro_batches == 64);
  CHECK(pipelines[0].stages[1].on == std::vector<std::string>{"Titan-RTX", "RTX-2080"});
  CHECK(pipelines[0].stages[1].tensor_parallel == 8);
}

TEST_CASE("replicas of unlike degrees are pipelines of their own") {
  const auto map = stage_map("stage map: A(tp4)+A(tp4)+B(tp8) | B(tp2)+A(tp2)+B(tp2)");
  REQUIRE(map.has_value());
  const auto pipelines = pipelines_of(*map, 3);
  REQUIRE(pipelines.size() == 2);
  CHECK(pipelines[0].replicas == 2);
  CHECK(pipelines[1].replicas == 1);
  CHECK(pipelines[1].stages[0].on == std::vector<std::string>{"B"});
  CHECK(pipelines[1].stages[0].tensor_parallel == 8);
}

TEST_CASE("a map of another form is none") {
  CHECK_FALSE(stage_map("no map").has_value());
  CHECK_FALSE(stage_map("stage map: A(tp8)+B | A(tp8)+B(tp8)").has_value());
  CHECK_FALSE(stage_map("stage map: A(tp8)+B(tp8) | A(tp8)").has_value());
}

TEST_CASE("chips of several kinds are the groups of their names, in full nodes") {
  CHECK_FALSE(chips_by_kind("A100-SXM-80GB").has_value());
  const auto counts = chips_by_kind("RTX-2080:16+Titan-RTX:2");
  REQUIRE(counts.has_value());
  Cluster cluster = load_cluster("sailor-mit");
  REQUIRE(keep_chips(*counts, cluster));
  REQUIRE(cluster.groups.size() == 2);
  CHECK(cluster.groups[0].nodes == 2);
  CHECK(cluster.groups[0].chips_per_node == 8);
  CHECK(cluster.groups[1].nodes == 1);
  CHECK(cluster.groups[1].chips_per_node == 2);
  CHECK(cluster.links.size() == 1);
  CHECK(cluster.chip_count() == 18);
  CHECK_FALSE(keep_chips({{"RTX-4090", 8}}, cluster));
}

namespace {

// Reads a plan for OPT-350M in the form in which Sailor prints its plans.
std::variant<Measured, PassedOver> read_plan(const std::string& accelerator, int chips,
                                             const std::string& degrees, const std::string& notes) {
  const std::string head =
      "id,accelerator,n_accelerators,model_name,hidden,ffn_hidden,layers,heads,vocab,seq_len,global_batch,"
      "micro_batch,tp,pp,dp,metric,value,notes\n";
  const std::string row =
      fmt::format("sailorhet-1,{},{},OPT-350M,1024,4096,24,16,50272,2048,256,2,{},iteration_time,60,{}\n",
                  accelerator, chips, degrees, notes);
  auto rows = parse_csv_table(head + row, "runs.csv");
  const std::vector<PublishedRun> runs = {{"sailorhet-1", "sailorhet", rows.at(0)}};
  return PublishedRules().read(runs[0], runs);
}

}  // namespace

TEST_CASE("a plan over unlike chips becomes a job on their groups, of layers as measured") {
  const auto plan = read_plan("RTX-2080:16+RTX-3090:8+Titan-RTX:8", 32, "8,2,2",
                              "layers per stage 12/14; stage map: RTX-3090(tp8)+RTX-2080(tp8) | "
                              "Titan-RTX(tp8)+RTX-2080(tp8)");
  if (const auto* passed = std::get_if<PassedOver>(&plan)) FAIL(passed->reason);
  const Job& job = std::get<Measured>(plan).scenario.job;
  CHECK(job.cluster.chip_count() == 32);
  REQUIRE(job.strategy.templates.size() == 1);
  const PipelineTemplate& pipeline = job.strategy.templates[0];
  CHECK(pipeline.micro_batches == 64);
  CHECK(pipeline.stages[0].last_layer == 11);
  CHECK(pipeline.stages[0].on == std::vector<std::string>{"RTX-3090", "RTX-2080"});
  CHECK(pipeline.stages[1].resharding == Resharding::gather);
  CHECK_FALSE(job.transformer.tied_embeddings);
  for (const NodeGroup& group : job.cluster.groups) CHECK_FALSE(group.chip.software.layers.times.empty());
}

TEST_CASE("a plan over one kind of a mixed cluster has that kind's network") {
  const auto plan = read_plan("RTX-2080", 16, "8,2,1", "layers per stage 13/13");
  if (const auto* passed = std::get_if<PassedOver>(&plan)) FAIL(passed->reason);
  const Cluster& cluster = std::get<Measured>(plan).scenario.job.cluster;
  REQUIRE(cluster.groups.size() == 1);
  CHECK(cluster.groups[0].chip.name == "rtx-2080-ti");
  CHECK(cluster.groups[0].nodes == 2);
  CHECK(cluster.groups[0].nics.at(0).bandwidth == Approx(25e9 / 8));
}

TEST_CASE("a plan whose layers are not its model's is passed over") {
  const auto plan = read_plan("RTX-2080", 16, "8,2,1", "layers per stage 13/14");
  CHECK(std::holds_alternative<PassedOver>(plan));
}
