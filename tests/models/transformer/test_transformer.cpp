// Parameter counts, shards and FLOPs of the models that ship. Read next: tests/models/cluster/test_cluster.cpp.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/scenario/scenario.hpp"
#include "models/transformer/transformer.hpp"

using namespace motley;

TEST_CASE("parameter counts are the published ones") {
  // From the model cards on the Hugging Face hub, the `safetensors` entries of its API (2025) and torch's numel();
  // gpt3-175b from equation 2 of arXiv:2104.04473, rounded there to 174.6 B.
  const auto [name, published] = GENERATE(table<std::string, std::int64_t>({
      {"gpt2", 124'439'808},
      {"gpt2-medium", 354'823'168},
      {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},
      {"llama-2-7b", 6'738'415'616},
      {"llama-2-13b", 13'015'864'320},
      {"llama-2-70b", 68'976'648'192},
      {"llama-3-8b", 8'030'261'248},
      {"llama-3.2-1b", 1'235'814'400},
      {"tinyllama-1.1b", 1'100'048'384},
      {"gpt3-175b", 174'615'846'912},
      {"llama-3-70b", 70'553'706'496},
      {"llama-3.1-405b", 405'853'388'800},
      {"mistral-7b", 7'241'732'096},
      {"mixtral-8x7b", 46'702'792'704},
      {"qwen2-7b", 7'615'616'512},
      {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-72b", 72'706'203'648},
      {"qwen3-0.6b", 596'049'920},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen1.5-moe-a2.7b", 14'315'784'192},
      {"deepseek-v3", 671'026'419'200},
      {"phi-3-mini", 3'821'079'552},
      {"phi-3-medium", 13'960'238'080},
      {"phi-4", 14'659'507'200},
      {"phi-4-mini", 3'836'021'760},
      {"gemma-2-2b", 2'614'341'888},
      {"gemma-2-9b", 9'241'705'984},
      {"gemma-2-27b", 27'227'128'320},
      {"gemma-3-1b", 999'885'952},
      {"gpt-oss-20b", 20'914'757'184},
      {"gpt-oss-120b", 116'829'156'672},
      {"olmo-2-7b", 7'298'617'344},
      {"olmo-2-13b", 13'716'198'400},
      {"olmo-2-32b", 32'234'279'936},
      {"glm-4-9b", 9'399'951'360},
      {"deepseek-v2", 235'741'434'880},
      {"deepseek-v2-lite", 15'706'484'224},
      {"kimi-k2", 1'026'408'232'448},
  }));
  INFO(name);
  CHECK(parameter_count(load_transformer(name)) == published);
}

TEST_CASE("active parameter counts are the published ones") {
  // Rounded as published. Mixtral: arXiv:2401.04088, abstract ("13B active"). Qwen3-30B-A3B: its model card (3.3B).
  // Qwen1.5-MoE-A2.7B: its model card ("2.7B activated"). DeepSeek-V3: README_WEIGHTS.md of its repository: 36.6 B
  // with the head and without the embedding table.
  const auto [name, billions, with_table] = GENERATE(table<std::string, double, bool>({
      {"mixtral-8x7b", 13, true},
      {"qwen3-30b-a3b", 3.3, true},
      {"qwen1.5-moe-a2.7b", 2.7, true},
      {"deepseek-v3", 36.6, false},
      {"llama-3-8b", 8.03, true},
      // gpt-oss: arXiv:2508.10925, table 1, which leaves the embedding table out. Kimi K2: arXiv:2507.20534, table 2.
      // DeepSeek-V2: arXiv:2405.04434, abstract. Llama 4: its model card ("17B activated").
      {"gpt-oss-20b", 3.61, false},
      {"gpt-oss-120b", 5.13, false},
      {"kimi-k2", 32.6, true},
      {"deepseek-v2", 21, true},
      {"llama-4-scout", 17, true},
      {"llama-4-maverick", 17, true},
  }));
  INFO(name);
  const Transformer t = load_transformer(name);
  const std::int64_t active = active_parameter_count(t) - (with_table ? 0 : t.vocabulary * t.hidden);
  CHECK(static_cast<double>(active) / 1e9 == Approx(billions).epsilon(0.02));
}

TEST_CASE("DeepSeek-V3's module for a second token is counted apart") {
  // README_WEIGHTS.md of its repository: 11.5 B beside the model's own embedding and head.
  CHECK(extra_prediction_count(load_transformer("deepseek-v3")) / 1e9 == Approx(11.5).epsilon(0.01));
  CHECK(extra_prediction_count(load_transformer("llama-3-8b")) == 0);
}

TEST_CASE("modules that predict further tokens are there once their loss weighs something") {
  Transformer t = load_transformer("deepseek-v3");
  const auto held = [&] {
    std::int64_t count = 0;
    for (const Parameter& parameter : parameters(t)) count += parameter.count();
    return count;
  };
  const std::int64_t counted = parameter_count(t), active = active_parameter_count(t), T = 4096;
  CHECK(held() == counted);
  const double flops = model_flops_per_sequence(t, T);
  t.extra_prediction_weight = 0.3;
  CHECK(held() == counted + extra_prediction_count(t));
  CHECK(parameter_count(t) == counted);
  CHECK(active_parameter_count(t) == active);
  // A layer with experts like the last one, the projection and the head once more: six FLOPs for each of their
  // products.
  Transformer shorter = load_transformer("deepseek-v3");
  --shorter.layers;
  const double layer = flops - model_flops_per_sequence(shorter, T);
  const double more = 6.0 * static_cast<double>(2 * t.hidden * t.hidden + t.vocabulary * t.hidden) * T;
  CHECK(model_flops_per_sequence(t, T) == Approx(flops + layer + more));
  CHECK(layer_name(t, t.layers + 1) == "extra.0");
}

TEST_CASE("layers of one model may differ from each other") {
  const Transformer t = load_transformer("deepseek-v3");
  CHECK_FALSE(t.has_experts(2));
  CHECK(t.has_experts(3));
  CHECK(load_transformer("mistral-7b").window(0) == 4096);
  CHECK(load_transformer("qwen2-7b").window(27) == 0);
  std::int64_t dense = 0, routed = 0;
  for (const Parameter& parameter : parameters(t)) {
    dense += parameter.name == "layers.2.gate_up.weight" ? parameter.count() : 0;
    routed += parameter.name == "layers.3.experts.gate_up.weight" ? parameter.count() : 0;
  }
  CHECK(dense == 2 * 18432 * 7168);
  CHECK(routed == 256LL * 2 * 2048 * 7168);
}

TEST_CASE("a sliding window counts the pairs it does not mask") {
  // The pairs are counted one by one, then doubled less the diagonal, in the way in which T*T counts the causal
  // triangle.
  for (std::int64_t window : {1, 3, 7, 8, 20}) {
    double pairs = 0;
    for (std::int64_t query = 0; query < 8; ++query)
      for (std::int64_t key = 0; key <= query; ++key) pairs += query - key < window ? 1 : 0;
    const double diagonal = std::min<double>(8, static_cast<double>(window));
    INFO(window);
    CHECK(attention_pairs(8, window) == 2 * pairs - diagonal);
  }
  CHECK(attention_pairs(8, 0) == 64);
}

TEST_CASE("model FLOPs are those of arXiv:2104.04473, without its recompute factor") {
  const Transformer t = load_transformer("gpt3-175b");
  const double L = 96, T = 2048, C = 12288, V = 51200;
  const double paper = 72 * L * T * C * C * (1 + T / (6 * C) + V / (12 * L * C));
  CHECK(model_flops_per_sequence(t, 2048) == Approx(paper).epsilon(1e-12));
}

TEST_CASE("tensor-parallel shards of cut parameters add up to the whole") {
  const Transformer t = load_transformer("llama-2-70b");
  for (const Parameter& parameter : parameters(t)) {
    std::int64_t shard = 1;
    for (std::int64_t extent : shard_shape(parameter, 8)) shard *= extent;
    INFO(parameter.name);
    CHECK(shard * (parameter.cut == Cut::replicated ? 1 : 8) == parameter.count());
  }
}

TEST_CASE("a vocabulary that does not divide is padded, not cut short") {
  const Transformer t = load_transformer("gpt2");
  const Parameter token = parameters(t)[0];
  CHECK(shard_shape(token, 8) == std::vector<std::int64_t>{6283, 768});
  CHECK(6283 * 8 >= t.vocabulary);
}

TEST_CASE("parameters have the names and order that the Program relies on") {
  const std::vector<Parameter> gpt2 = parameters(load_transformer("gpt2"));
  CHECK(gpt2[0].name == "embedding.token.weight");
  CHECK(gpt2[1].name == "embedding.position.weight");
  CHECK(gpt2[4].name == "layers.0.qkv.weight");
  CHECK(gpt2[4].parts == std::vector<std::int64_t>{768, 768, 768});
  CHECK(gpt2.back().name == "head.norm.bias");
  const std::vector<Parameter> llama = parameters(load_transformer("llama-3-8b"));
  CHECK(llama[2].shape == std::vector<std::int64_t>{4096 + 2 * 1024, 4096});
  CHECK(llama[5].name == "layers.0.gate_up.weight");
  CHECK(llama.back().name == "head.weight");
}
