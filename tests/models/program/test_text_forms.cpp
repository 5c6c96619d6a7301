// Values print as text and read back equal, both random values and those that ship. Whatever a file
// contains, the readers return a value or throw a Refusal that points into it.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "models/check/check.hpp"
#include "models/plan/prepare.hpp"
#include "models/scenario/scenario.hpp"
#include "models/strategy/strategy.hpp"
#include "tests/support/random_text.hpp"

using namespace motley;
using motley::tests::damaged;
using motley::tests::Random;

namespace {

const std::string kRoot = MOTLEY_SOURCE_DIR;

// Some of the layers, in ascending order.
std::vector<std::int64_t> random_layers(Random& random, std::int64_t layers) {
  std::vector<std::int64_t> some;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    if (random.integer(0, 9) == 0) some.push_back(layer);
  return some;
}

Experts random_experts(Random& random, std::int64_t layers) {
  Experts e;
  e.groups = random.integer(1, 8);
  e.groups_per_token = random.integer(1, e.groups);
  e.count = e.groups * random.integer(1, 16);
  e.per_token = random.integer(1, e.count / e.groups * e.groups_per_token);
  e.ffn = random.integer(1, 4096);
  e.shared_ffn = random.integer(0, 2) * 512;
  e.shared_gate = random.coin();
  e.dense_layers = random_layers(random, layers);
  e.scores = random.coin() ? RouterScores::softmax : RouterScores::sigmoid;
  e.normalise = random.coin();
  e.scale = random.coin() ? 1.0 : random.positive();
  e.balancing_bias = random.coin();
  e.bias = random.coin();
  e.router_bias = random.coin();
  e.weighted_inputs = random.coin();
  return e;
}

// Changes what differs between the families that descend from Llama.
void vary(Random& random, Transformer& t) {
  t.output_bias = random.coin();
  t.ffn_bias = random.coin();
  if (!t.output_bias && !t.ffn_bias)
    t.norms = std::array{NormPlaces::before, NormPlaces::both, NormPlaces::after}.at(
        static_cast<std::size_t>(random.integer(0, 2)));
  t.activation = std::array{GateActivation::silu, GateActivation::gelu, GateActivation::clamped_silu}.at(
      static_cast<std::size_t>(random.integer(0, 2)));
  if (random.coin()) t.logit_softcap = random.positive();
  if (random.coin()) t.embedding_scale = random.positive();
  t.extra_predictions = random.integer(0, 2);
  if (random.coin()) t.extra_prediction_weight = random.positive();
  if (random.coin()) t.experts = random_experts(random, t.layers);
  if (random.coin()) {
    t.kv_heads = t.heads;
    t.head_dim += 2;
    t.latent = {random.integer(0, 1) * 96, random.integer(1, 512), 2, random.integer(1, 128)};
    return;
  }
  t.qkv_bias = random.coin();
  t.qk_norm = random.coin();
  if (t.qk_norm)
    t.qk_norm_form = std::array{QkNormForm::head, QkNormForm::all_heads, QkNormForm::unweighted}.at(
        static_cast<std::size_t>(random.integer(0, 2)));
  t.sliding_window = random.integer(0, 1) * random.integer(1, 4096);
  if (t.sliding_window == 0) t.attention_chunk = random.integer(0, 1) * random.integer(1, 4096);
  if (t.sliding_window + t.attention_chunk > 0) {
    t.full_attention_rope = random.coin();
    if (random.coin()) t.windowed_rope_theta = random.positive();
  }
  t.rope_dim = 2 * random.integer(0, t.head_dim / 2);
  t.attention_sinks = random.coin();
  t.score_width = random.integer(0, 1) * random.integer(1, 4096);
  if (random.coin()) t.attention_softcap = random.positive();
  t.full_attention = random_layers(random, t.layers);
}

Transformer random_transformer(Random& random) {
  Transformer t;
  t.name = random.word();
  t.family = random.coin() ? Family::gpt2 : Family::llama;
  t.vocabulary = random.integer(1, 1 << 18);
  t.layers = random.integer(1, 200);
  t.kv_heads = random.integer(1, 16);
  t.heads = t.family == Family::gpt2 ? t.kv_heads : t.kv_heads * random.integer(1, 8);
  t.head_dim = 2 * random.integer(1, 128);
  t.hidden = random.coin() ? t.heads * t.head_dim : random.integer(1, 1 << 14);
  t.ffn = random.integer(1, 1 << 16);
  t.max_positions = random.integer(1, 1 << 20);
  t.tied_embeddings = random.coin();
  t.norm_epsilon = random.positive();
  t.rope_theta = random.positive();
  t.source = random.word();
  if (t.family == Family::llama) vary(random, t);
  return t;
}

Sourced random_figure(Random& random) { return {random.positive(), random.word()}; }
// A share, or another figure without a unit: all of these may be at most 0.3.
Sourced random_plain_figure(Random& random) {
  return {0.3 / static_cast<double>(random.integer(1, 1'000'000)), random.word()};
}

Chip random_chip(Random& random) {
  Chip chip;
  chip.name = random.word();
  chip.vendor = random.word();
  chip.kind = random.coin() ? "gpu" : "cpu";
  for (Format format : kFormats)
    if (random.coin()) chip.peak_flops[format] = random_figure(random);
  for (Sourced Chip::*needed : {&Chip::memory_bytes, &Chip::memory_bandwidth})
    chip.*needed = random_figure(random);
  if (random.coin()) chip.multiprocessors = random_plain_figure(random);
  for (Sourced Chip::*optional : {&Chip::watts, &Chip::price_per_hour})
    if (random.coin()) chip.*optional = random_figure(random);
  ChipSoftware& software = chip.software;
  for (Sourced ChipSoftware::*needed : {&ChipSoftware::gemm_efficiency, &ChipSoftware::attention_efficiency,
                                        &ChipSoftware::bandwidth_efficiency})
    software.*needed = random_plain_figure(random);
  for (Sourced ChipSoftware::*optional :
       {&ChipSoftware::gemm_k_half, &ChipSoftware::gemm_wave, &ChipSoftware::attention_s_half,
        &ChipSoftware::gemm_backward, &ChipSoftware::elementwise_passes, &ChipSoftware::unfused_attention,
        &ChipSoftware::launch_wait, &ChipSoftware::collective_share, &ChipSoftware::kept_scores,
        &ChipSoftware::kept_masks, &ChipSoftware::kept_logits, &ChipSoftware::kept_weight_gradients,
        &ChipSoftware::kept_optimizer, &ChipSoftware::kept_weights, &ChipSoftware::variation})
    if (random.coin()) software.*optional = random_plain_figure(random);
  for (Sourced ChipSoftware::*optional :
       {&ChipSoftware::kernel_overhead, &ChipSoftware::step_overhead, &ChipSoftware::reserved_memory,
        &ChipSoftware::layer_launch, &ChipSoftware::expert_launch, &ChipSoftware::micro_batch_overhead,
        &ChipSoftware::pass_overhead})
    if (random.coin()) software.*optional = random_figure(random);
  if (random.coin()) software.one_master = {random.coin(), random.word()};
  if (random.coin()) software.overlap_slowdown = random_plain_figure(random);
  if (software.overlap_slowdown.value > 0) software.overlap_slowdown.value += 1;
  return chip;
}

std::optional<Site> random_site(Random& random) {
  if (random.coin()) return {};
  Site site;
  if (random.coin()) site.pue = 1 + random.positive();
  if (random.coin()) site.electricity = random.positive();
  if (random.coin()) site.carbon = random.coin() ? 0 : random.positive();
  if (random.coin()) site.node_watts = random.positive();
  return site;
}

Cluster random_cluster(Random& random) {
  Cluster cluster;
  cluster.name = random.word();
  const std::int64_t groups = random.integer(1, 4);
  for (std::int64_t i = 0; i < groups; ++i) {
    NodeGroup group;
    group.name = random.word() + std::to_string(i);
    group.nodes = static_cast<int>(random.integer(1, 3));
    group.chip = random_chip(random);
    group.chips_per_node = static_cast<int>(random.integer(1, 8));
    group.inside = {static_cast<FabricKind>(random.integer(0, 4)), random.positive(),
                    random.coin() ? 0.0 : random.positive()};
    group.nics.push_back({NicKind::ethernet, 1, random.positive(), random.positive()});
    if (random.coin())
      group.nics.push_back({NicKind::roce, static_cast<int>(random.integer(1, 8)), random.positive(), 0.0});
    if (random.coin())
      group.host =
          Host{random.positive(), random.positive(), random.positive(), random.coin() ? "here: \"now\"" : ""};
    group.site = random_site(random);
    cluster.groups.push_back(group);
    for (std::int64_t other = 0; other < i; ++other)
      if (random.coin())
        cluster.links.push_back(
            {cluster.groups[static_cast<std::size_t>(other)].name, group.name, NicKind::ethernet});
  }
  cluster.site = random_site(random);
  build_topology(cluster);
  return cluster;
}

Recompute random_recompute(Random& random) {
  if (random.coin()) return Recompute::full;
  return {.modules = static_cast<std::uint8_t>(random.integer(0, 3))};
}

Strategy random_strategy(Random& random) {
  Strategy strategy;
  strategy.schedule = random.coin() ? Schedule::gpipe : Schedule::one_f_one_b;
  strategy.recompute = random_recompute(random);
  strategy.sequence_parallel = random.coin();
  strategy.p2p_buffers = static_cast<int>(random.integer(1, 8));
  strategy.overlap_p2p = random.coin();
  strategy.overlap_gradients = random.coin();
  strategy.overlap_parameters = random.coin();
  if (random.coin()) strategy.overlap_steps = random.coin();
  strategy.overlap_experts = random.coin();
  strategy.overlap_context = random.coin();
  strategy.put_off = random.coin() ? PutOff::count : PutOff::memory;
  strategy.bucket_bytes = random.integer(1, std::int64_t{1} << 40);
  const auto offload = [&] { return Offload{random.coin() ? 0.0 : 0.25, random.coin() ? 1.0 : 0.5}; };
  if (random.coin()) strategy.offload = offload();
  strategy.zero = static_cast<int>(random.integer(0, 3));
  strategy.shard_over = random.coin() ? random.integer(2, 1000) : 0;
  strategy.prefetch = static_cast<int>(random.integer(0, 8));
  for (std::int64_t i = random.integer(1, 3); i > 0; --i) {
    PipelineTemplate pipeline;
    pipeline.replicas = random.integer(1, 1000);
    pipeline.micro_batches = random.integer(1, 1000);
    pipeline.micro_batch = random.integer(0, 3);
    pipeline.context_parallel = random.integer(1, 4);
    std::int64_t next = 0;
    for (std::int64_t stage = random.integer(1, 6); stage > 0; --stage) {
      const std::int64_t last = next + random.integer(0, 40);
      Stage random_stage{next, last, random.integer(1, 64), {}, {}};
      for (std::int64_t on = random.integer(0, 2); on > 0; --on)
        random_stage.on.push_back(on == 1 ? "ib" : "roce");
      if (random.coin()) random_stage.recompute = random_recompute(random);
      if (random.coin()) random_stage.recompute_layers = random.integer(1, 40);
      if (random.coin()) random_stage.offload = offload();
      if (random.coin()) random_stage.replicas = random.integer(1, 1000);
      if (random.coin()) random_stage.resharding = random.coin() ? Resharding::gather : Resharding::direct;
      if (random.coin()) random_stage.expert_parallel = random.integer(1, 64);
      if (random.coin()) random_stage.expert_tensor_parallel = random.integer(1, 8);
      pipeline.stages.push_back(random_stage);
      next = last;
    }
    strategy.templates.push_back(pipeline);
  }
  return strategy;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// How many of `count` damaged forms of the text are refused. Any exception that is not a Refusal fails the test.
template <typename Read>
int refused_of(int count, const std::string& text, Read read) {
  int refused = 0;
  for (int seed = 1; seed <= count; ++seed) {
    Random random(static_cast<std::uint32_t>(seed));
    const std::string wrong = damaged(text, random);
    INFO("seed " << seed << ":\n" << wrong);
    try {
      read(parse_yaml(wrong, "file.yaml"));
    } catch (const Refusal& refusal) {
      ++refused;
      CHECK_FALSE(refusal.message().empty());
      CHECK(refusal.where().file.find(".yaml") != std::string::npos);
    } catch (const std::exception& error) {
      FAIL("not a Refusal: " << error.what());
    }
  }
  return refused;
}

}  // namespace

TEST_CASE("any transformer prints as text that reads back equal") {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const Transformer value = random_transformer(random);
    INFO("seed " << seed << ":\n" << print(value));
    REQUIRE(parse_transformer(print(value)) == value);
  }
}

TEST_CASE("any cluster prints as text that reads back equal") {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const Cluster value = random_cluster(random);
    INFO("seed " << seed << ":\n" << print(value));
    const Cluster read = parse_cluster(print(value));
    REQUIRE(read == value);
    REQUIRE(read.link_count == value.link_count);
    REQUIRE(read.chip_node == value.chip_node);
  }
}

TEST_CASE("any strategy prints as text that reads back equal") {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const Strategy value = random_strategy(random);
    INFO("seed " << seed << ":\n" << print(value));
    REQUIRE(parse_strategy(print(value)) == value);
  }
}

TEST_CASE("a changed value prints as another text") {
  const std::vector<void (*)(Strategy&)> changes = {
      [](Strategy& s) {
        s.schedule = s.schedule == Schedule::gpipe ? Schedule::one_f_one_b : Schedule::gpipe;
      },
      [](Strategy& s) { s.recompute = s.recompute == Recompute::none ? Recompute::full : Recompute::none; },
      [](Strategy& s) { s.sequence_parallel = !s.sequence_parallel; },
      [](Strategy& s) { s.overlap_gradients = !s.overlap_gradients; },
      [](Strategy& s) { ++s.p2p_buffers; },
      [](Strategy& s) { ++s.bucket_bytes; },
      [](Strategy& s) { s.zero = 3 - s.zero; },
      [](Strategy& s) { s.offload.activations = 1 - 0.5 * s.offload.activations; },
      [](Strategy& s) { ++s.templates[0].replicas; },
      [](Strategy& s) { ++s.templates.back().micro_batches; },
      [](Strategy& s) { ++s.templates[0].stages[0].tensor_parallel; },
      [](Strategy& s) { ++s.templates[0].stages.back().last_layer; },
      [](Strategy& s) { s.templates[0].stages[0].on.push_back("ethernet"); }};
  Random random(1);
  for (int i = 0; i < 50; ++i) {
    const Strategy value = random_strategy(random);
    for (std::size_t change = 0; change < changes.size(); ++change) {
      Strategy changed = value;
      changes[change](changed);
      INFO("change " << change << " of\n" << print(value));
      REQUIRE_FALSE(changed == value);
      REQUIRE(print(changed) != print(value));
    }
  }
}

TEST_CASE("every model and cluster that ships prints as text that reads back equal") {
  int models = 0, clusters = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot + "/scenarios/models")) {
    const Transformer value = load_transformer(entry.path().string());
    INFO(entry.path());
    CHECK(parse_transformer(print(value)) == value);
    CHECK_FALSE(value.source.empty());
    ++models;
  }
  for (const auto& entry : std::filesystem::directory_iterator(kRoot + "/platforms")) {
    if (entry.path().extension() != ".yaml") continue;
    const Cluster value = load_cluster(entry.path().string());
    INFO(entry.path());
    CHECK(parse_cluster(print(value)) == value);
    ++clusters;
  }
  CHECK(models >= 13);
  CHECK(clusters >= 6);
}

TEST_CASE("a damaged cluster, model or strategy is read or refused, never worse") {
  const int count = 400;
  const int clusters =
      refused_of(count, text_of(kRoot + "/platforms/holmes-hybrid-8.yaml"),
                 [](const Yaml& node) { read_cluster(node, "damaged", kRoot + "/platforms"); });
  const int chips = refused_of(count, text_of(kRoot + "/platforms/chips/a100-80gb-sxm.yaml"),
                               [](const Yaml& node) { read_chip(node, "damaged"); });
  const int models = refused_of(count, text_of(kRoot + "/scenarios/models/llama-3-8b.json"),
                                [](const Yaml& node) { read_hugging_face(node, "damaged"); });
  Random random(1);
  const int strategies = refused_of(count, print(random_strategy(random)),
                                    [](const Yaml& node) { read_explicit_strategy(node); });
  for (int refused : {clusters, chips, models, strategies}) {
    CHECK(refused > count / 20);
    CHECK(refused < count);
  }
}

TEST_CASE("a damaged scenario is compiled and checked, or refused, never worse") {
  const std::string page = kRoot + "/scenarios/quickstart-train.yaml";
  const std::string text = text_of(page) + "fidelity: {tensor_parallel: fluid, data_parallel: formula}\n";
  int checked = 0;
  const int refused = refused_of(600, text, [&](const Yaml& node) {
    const Scenario scenario = read_scenario(node, page);
    if (scenario.job.strategy.templates[0].micro_batches > 1000) return;  // legal, but slow
    check(compile(scenario), scenario);
    ++checked;
  });
  CHECK(refused > 200);
  CHECK(checked > 60);
}
