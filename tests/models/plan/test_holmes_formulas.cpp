// What Holmes publishes and can be checked exactly: its formula for TFLOP/s, and its partition of layers by speed.
// Interconnects (T-1, T-2) and NIC choice (O-3) are tested elsewhere.
#include <catch2/catch.hpp>
#include <random>

#include "models/base/refusal.hpp"
#include "models/report/published_metrics.hpp"
#include "models/strategy/partition.hpp"

using namespace motley;

namespace {

// The models of Holmes's scripts (github.com/CodexDive/Holmes): V 51200, sequences of 2048 tokens.
Transformer holmes_gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  Transformer t;
  t.vocabulary = 51'200;
  t.hidden = hidden;
  t.layers = layers;
  t.heads = t.kv_heads = heads;
  t.head_dim = hidden / heads;
  t.ffn = 4 * hidden;
  t.max_positions = 2048;
  return t;
}

}  // namespace

TEST_CASE("O-1: TFLOP/s and samples/s of Holmes's table are one by its formula") {
  const Transformer gpt = holmes_gpt(30, 3072, 32);
  CHECK(megatron_flops_per_sequence(gpt, 2048) == Approx(63.780e12).epsilon(5e-5));
  CHECK(megatron_flops_per_sequence(holmes_gpt(36, 4096, 32), 2048) == Approx(131.220e12).epsilon(5e-5));
  CHECK(megatron_flops_per_sequence(holmes_gpt(48, 8192, 64), 2048) == Approx(664.861e12).epsilon(5e-5));
  struct Row {
    std::int64_t chips;
    double tflops, samples_per_s;
  };
  for (const Row& row : {Row{32, 197, 98.84},
                         {32, 160, 80.28},
                         {32, 122, 61.21},
                         {64, 148, 148.51},
                         {64, 145, 145.50},
                         {64, 83, 83.29}}) {
    CHECK(sequences_per_s(gpt, 2048, row.tflops * 1e12, row.chips) ==
          Approx(row.samples_per_s).epsilon(5e-3));
    CHECK(megatron_flops_per_chip(gpt, 2048, row.samples_per_s, row.chips) ==
          Approx(row.tflops * 1e12).epsilon(5e-3));
  }
}

TEST_CASE("O-2: layers in proportion to speed are those that Holmes ships") {
  const std::vector<double> speeds = {197, 160};
  CHECK(layers_by_speed(30, speeds) == std::vector<std::int64_t>{16, 14});
  CHECK(layers_by_speed(48, speeds) == std::vector<std::int64_t>{26, 22});
  CHECK(layers_by_speed(30, speeds, 1.05) == std::vector<std::int64_t>{17, 13});
  CHECK(layers_by_speed(48, speeds, 1.05) == std::vector<std::int64_t>{27, 21});
  const HeteroStages stages = parse_hetero_stages("2 4 4 3 5 5 5");
  CHECK(stages.stages() == 5);
  CHECK(stages.layers() == 23);
  CHECK(stages.layers_by_type == std::vector<std::vector<std::int64_t>>{{4, 4}, {5, 5, 5}});
  for (const char* broken : {"", "2 4", "1 0", "1 4 x", "0", "2 4 4 3 5 5"})
    CHECK_THROWS_AS(parse_hetero_stages(broken), Refusal);
}

TEST_CASE("any split by speed holds every layer, at least one a stage") {
  std::mt19937_64 random(20);
  for (int round = 0; round < 2000; ++round) {
    const auto stages = 1 + random() % 12;
    std::vector<double> speeds;
    for (std::size_t i = 0; i < stages; ++i) speeds.push_back(0.01 + static_cast<double>(random() % 1000));
    const auto layers = static_cast<std::int64_t>(stages + random() % 200);
    const auto split = layers_by_speed(layers, speeds, 0.8 + 0.001 * static_cast<double>(random() % 500));
    REQUIRE(split.size() == stages);
    std::int64_t sum = 0;
    for (std::int64_t count : split) {
      REQUIRE(count >= 1);
      sum += count;
    }
    REQUIRE(sum == layers);
  }
}
