// What the three systems that Motley implements publish and can be checked exactly: Holmes's formula and partition,
// H2's estimate and stage order. Interconnects (T-1, T-2) and NIC choice (O-3) stand in tests of their own.
#include <catch2/catch.hpp>
#include <random>

#include "models/check.hpp"
#include "models/partition.hpp"
#include "models/published_metrics.hpp"
#include "models/refusal.hpp"
#include "models/schedule.hpp"
#include "tests/models/tiny_job.hpp"

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

// Two groups of one node each, alike but for their memory.
Cluster two_memories(int chips, double large_bytes, double small_bytes) {
  Cluster cluster = tests::tiny_cluster(chips);
  NodeGroup large = cluster.groups[0];
  large.nics = {{NicKind::ethernet, 1, 1e9, 1e-5}};
  NodeGroup small = large;
  large.name = "large";
  small.name = "small";
  large.chip.memory_bytes = {large_bytes, "assumed"};
  small.chip.memory_bytes = {small_bytes, "assumed"};
  Cluster both;
  both.name = "two-memories";
  both.groups = {large, small};
  both.links = {{"large", "small", NicKind::ethernet}};
  build_topology(both);
  return both;
}

bool fits(Job job, const std::vector<std::string>& order) {
  for (std::size_t i = 0; i < order.size(); ++i) job.strategy.templates[0].stages[i].on = {order[i]};
  try {
    check(compile(job), job.cluster);
    return true;
  } catch (const Refusal& refusal) {
    REQUIRE(refusal.kind() == "out-of-memory");
    return false;
  }
}

std::int64_t peak_of(const std::vector<StageMemory>& memory, int stage) {
  return memory[static_cast<std::size_t>(stage)].peak;
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

TEST_CASE(
    "T-5: the stage with the larger memory belongs first: last, the job fits only if it also does first") {
  std::mt19937_64 random(5);
  int only_first = 0, both = 0, neither = 0;
  for (int round = 0; round < 60; ++round) {
    const auto pp = static_cast<std::int64_t>(2 + random() % 3);
    Job job = tests::tiny_job({1, pp, 1}, Family::llama);
    job.cluster = two_memories(static_cast<int>(pp), 4e9, 4e9);
    const auto memory = check(compile(job), job.cluster);
    // 1F1B: the first stage holds the most micro-batches in flight.
    const auto most = static_cast<double>(peak_of(memory, 0)),
               least = static_cast<double>(peak_of(memory, 1));
    const double small = least * (0.6 + 0.001 * static_cast<double>(random() % 1000));
    job.cluster = two_memories(static_cast<int>(pp), most * 1.2, small);
    std::vector<std::string> first(static_cast<std::size_t>(pp), "small"), last = first;
    first.front() = "large";
    last.back() = "large";
    const bool fits_first = fits(job, first), fits_last = fits(job, last);
    if (fits_last) REQUIRE(fits_first);
    only_first += fits_first && !fits_last;
    both += fits_first && fits_last;
    neither += !fits_first;
  }
  CHECK(only_first > 0);
  CHECK(both + neither > 0);
}

TEST_CASE("T-7: H2's estimate is the makespan of 1F1B with equal stages, and never below it") {
  std::mt19937_64 random(7);
  double worst = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto stages = 2 + random() % 7;
    const auto micro_batches = static_cast<std::int64_t>(stages + random() % (41 - stages));
    const bool equal = round % 5 == 0;
    ScheduleTimes times;
    std::vector<double> stage_s;
    for (std::size_t i = 0; i < stages; ++i) {
      const double forward =
          equal && i > 0 ? times.stages[0].forward_s : 0.5 + static_cast<double>(random() % 1'000'000) * 1e-6;
      times.stages.push_back({forward, forward, forward});  // backward = 2x forward
      stage_s.push_back(3 * forward);
    }
    const Timetable timetable = make_timetable(
        Schedule::one_f_one_b, {static_cast<int>(stages), 1, static_cast<int>(micro_batches)}, times);
    const double makespan = evaluate(timetable, times).value().makespan_s;
    const double estimate = hetero_auto_estimate_s(stage_s, micro_batches);
    if (equal) REQUIRE(estimate == Approx(makespan).epsilon(1e-12));
    REQUIRE(estimate >= makespan * (1 - 1e-12));
    worst = std::max(worst, estimate / makespan - 1);
  }
  CHECK(worst > 0.02);  // unequal stages: an over-estimate, so not the truth
  CHECK(worst < 0.3);
}
