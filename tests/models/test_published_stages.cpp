// Plans that print their stages one by one.
#include <catch2/catch.hpp>

#include "models/published_stages.hpp"
#include "models/scenario.hpp"
#include "tests/models/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

TEST_CASE("layers by stage are read, embedding and head counted") {
  const auto layers = layers_per_stage("seconds; layers per stage 2/1/3; layer count includes");
  REQUIRE(layers.has_value());
  CHECK(*layers == std::vector<std::int64_t>{2, 1, 3});
  Strategy strategy = tiny_job({1, 3, 1}).strategy;  // of 4 layers
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
  CHECK_FALSE(set_layers({1, 5}, tiny_transformer(), strategy));  // the embedding alone
  CHECK_FALSE(set_layers({5, 1}, tiny_transformer(), strategy));
  CHECK(before.templates.size() == strategy.templates.size());
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
