// What a scenario says about its strategy, model and world: forms with the same meaning, and their hashes.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "models/base/data_files.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/software.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;

namespace {

// Loads a scenario from a file with this text.
Scenario load(const std::string& text) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("motley-scenario-" + std::to_string(getpid()) + ".yaml");
  std::ofstream(path) << text;
  const Scenario scenario = load_scenario(path);
  std::filesystem::remove(path);
  return scenario;
}

const std::string kSmall =
    "model: tiny-gpt2\ncluster: host-4\ntrain: {global_batch: 8, micro_batch: 2, sequence: 16, precision: "
    "fp32}\n";

}  // namespace

TEST_CASE("every platform and model that ships loads") {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(data_folder() + "/platforms")) {
    if (entry.path().extension() != ".yaml") continue;
    INFO(entry.path());
    const std::string folder = entry.path().parent_path().filename();
    if (folder == "published" || folder == "left_out" || folder == "layers" || folder == "kept")
      continue;  // these are not platforms
    if (folder == "software") {
      Cluster cluster = load_cluster("dgx-a100");
      use_software(entry.path().stem().string(), cluster);
    } else if (folder == "chips") {
      const Chip chip = load_chip(entry.path());
      CHECK(chip.name == entry.path().stem());
      for (const auto& [format, peak] : chip.peak_flops) CHECK_FALSE(peak.source.empty());
    } else {
      CHECK(load_cluster(entry.path()).chip_count() > 0);
    }
    ++count;
  }
  CHECK(count >= 9);
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(data_folder() + "/scenarios/models")) {
    INFO(entry.path());
    CHECK(parameter_count(load_transformer(entry.path())) > 0);
    ++models;
  }
  CHECK(models >= 13);
}

TEST_CASE("short form, long names and explicit form are one strategy") {
  const Job short_form = load(kSmall + "strategy: {tp: 2, pp: 2}\n").job;
  const Job long_names =
      load(kSmall + "strategy: {tensor_parallel: 2, pipeline_parallel: 2, data_parallel: 1}\n").job;
  const Job explicit_form = load(kSmall +
                                 "strategy:\n  templates:\n    - micro_batches: 4\n      stages: [{layers: "
                                 "0-1, tensor_parallel: 2}, "
                                 "{layers: 2-3, tensor_parallel: 2}]\n")
                                .job;
  CHECK(short_form.strategy == long_names.strategy);
  CHECK(short_form.strategy == explicit_form.strategy);
  const auto hash = [](const Job& job) { return strategy_hash(job.transformer, job.train, job.strategy); };
  CHECK(hash(short_form) == hash(explicit_form));
  CHECK(hash(short_form).size() == 16);
  CHECK(hash(short_form) != hash(load(kSmall + "strategy: {tp: 2, dp: 2}\n").job));
}

TEST_CASE("the strategy hash ignores names, seeds and learning rates") {
  const Job job = load(kSmall + "strategy: {tp: 2}\n").job;
  const auto hash = [&](auto change) {
    Job changed = job;
    change(changed);
    return strategy_hash(changed.transformer, changed.train, changed.strategy);
  };
  const std::string same = hash([](Job&) {});
  CHECK(hash([](Job& j) { j.transformer.name += "x"; }) == same);
  CHECK(hash([](Job& j) { j.train.seed = 9; }) == same);
  CHECK(hash([](Job& j) { j.train.learning_rate = 9; }) == same);
  CHECK(hash([](Job& j) { j.transformer.norm_epsilon = 1e-6; }) != same);
  CHECK(hash([](Job& j) { j.train.sequence = 8; }) != same);
  CHECK(hash([](Job& j) { j.train.precision = Format::bf16; }) != same);
  CHECK(hash([](Job& j) { j.strategy.p2p_buffers = 3; }) != same);
}

TEST_CASE("layers are split as even as can be, the first stages take one more") {
  Transformer t = load_transformer("gpt2");
  Train train;
  train.global_batch = 8;
  train.sequence = 16;
  const Strategy strategy = expand(t, train, 1, 5, 2);
  std::vector<std::int64_t> layers;
  for (const Stage& stage : strategy.templates[0].stages)
    layers.push_back(stage.last_layer - stage.first_layer);
  CHECK(layers == std::vector<std::int64_t>{3, 3, 2, 2, 2});
  CHECK_NOTHROW(validate(t, train, strategy));
}

TEST_CASE("worlds are chosen by name or by map, and `null` is a world") {
  CHECK(load(kSmall + "strategy: {}\n").world.kind == WorldKind::sim);
  CHECK(load(kSmall + "strategy: {}\nworld: null\n").world.kind == WorldKind::null);
  const WorldChoice mixed = load(kSmall + "strategy: {pp: 2}\nworld: {kind: mixed, real_ranks: [1]}\n").world;
  CHECK(mixed.kind == WorldKind::mixed);
  CHECK(mixed.real_ranks == std::vector<Rank>{1_rank});
}

TEST_CASE("a model can be written inline in our words or in those of a config.json") {
  const std::string rest = kSmall.substr(kSmall.find('\n')) + "strategy: {}\n";
  const Transformer ours =
      load(
          "model: {family: llama, vocabulary: 256, hidden: 64, layers: 2, heads: 4, kv_heads: 2, ffn: 96, "
          "max_positions: 64}" +
          rest)
          .job.transformer;
  const Transformer theirs =
      load(
          "model: {model_type: llama, vocab_size: 256, hidden_size: 64, num_hidden_layers: 2, "
          "num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 96, max_position_embeddings: "
          "64, "
          "rms_norm_eps: 1e-5, torch_dtype: bfloat16}" +
          rest)
          .job.transformer;
  CHECK(parameter_count(ours) == parameter_count(theirs));
  CHECK(ours.head_dim == 16);
  CHECK(theirs.norm_epsilon == ours.norm_epsilon);
}

TEST_CASE("the text that ships is there, plain ASCII") {
  std::ifstream file(default_text_path());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  CHECK(text.size() > 10'000);
  CHECK(std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST_CASE("layers are given a stage, by type of device or by speed, and stages a group") {
  const auto stages = [](const std::string& strategy) {
    return load(kSmall + "strategy: " + strategy + "\n").job.strategy.templates[0].stages;
  };
  for (const char* layers : {"[3, 1]", "{speeds: [3, 1]}", "\"1 3 1 1\"", "\"2 3 1\""}) {
    const auto read = stages(std::string("{pp: 2, layers: ") + layers + "}");
    REQUIRE(read.size() == 2);
    CHECK(read[0].last_layer == 3);
    CHECK(read[1].first_layer == 3);
    CHECK(read[1].last_layer == 4);
    CHECK(read[0].on.empty());
  }
  const auto placed = stages("{pp: 4, on: [host, slow]}");
  CHECK(placed[1].on == std::vector<std::string>{"host"});
  CHECK(placed[2].on == std::vector<std::string>{"slow"});
}

TEST_CASE("tensor parallelism in the short form is every stage's, or a number for each") {
  const auto degrees = [](const std::string& strategy) {
    std::vector<std::int64_t> list;
    const Scenario scenario = load(kSmall + "strategy: " + strategy + "\n");
    for (const Stage& stage : scenario.job.strategy.templates[0].stages)
      list.push_back(stage.tensor_parallel);
    return list;
  };
  CHECK(degrees("{tp: 2, pp: 2}") == std::vector<std::int64_t>{2, 2});
  CHECK(degrees("{tp: [2, 1], pp: 2}") == std::vector<std::int64_t>{2, 1});
  CHECK(degrees("{tensor_parallel: [1, 2], pp: 2, schedule: interleaved}") ==
        std::vector<std::int64_t>{1, 2});
  CHECK_THROWS_AS(degrees("{tp: [2, 3], pp: 2}"), Refusal);
}

TEST_CASE("resharding of stages that hold several chunks is every boundary's, that of the first stage too") {
  const auto stages = load(kSmall + "strategy: {tp: 2, pp: 2, schedule: interleaved, resharding: gather}\n")
                          .job.strategy.templates[0]
                          .stages;
  for (const Stage& stage : stages) CHECK(stage.resharding == Resharding::gather);
}

TEST_CASE("resharding in the short form is every boundary's") {
  const auto stages =
      load(kSmall + "strategy: {tp: 2, pp: 2, resharding: gather}\n").job.strategy.templates[0].stages;
  REQUIRE(stages.size() == 2);
  CHECK_FALSE(stages[0].resharding.has_value());
  CHECK(stages[1].resharding == Resharding::gather);
}
