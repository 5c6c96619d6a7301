// Models read from a Hugging Face config.json whose layers vary from Llama's: published counts, random small configs of
// each family against sums written out here, and what is refused. Read next: models/transformer/config_variants.cpp.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "models/scenario/scenario.hpp"
#include "models/transformer/transformer.hpp"
#include "tests/support/dice.hpp"

using namespace motley;
using nlohmann::json;

namespace {

using motley::tests::Dice;

Transformer read_config(const json& config) {
  return read_hugging_face(parse_yaml(config.dump(), "config.json"), "model");
}

// What a config of any family has.
json some_shape(Dice& dice, const char* type) {
  const std::int64_t kv = dice.one_of<std::int64_t>({1, 2, 3});
  return {{"model_type", type},
          {"vocab_size", dice.one_of({100, 257})},
          {"hidden_size", 48 * dice.one_of({1, 2, 3})},
          {"intermediate_size", dice.one_of({40, 96})},
          {"num_hidden_layers", dice.one_of({2, 3, 5, 8})},
          {"num_attention_heads", kv * dice.one_of<std::int64_t>({1, 2, 4})},
          {"num_key_value_heads", kv},
          {"head_dim", dice.one_of({8, 16})},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 4096}};
}

// The sizes of a config, by the letters of the papers.
struct Sizes {
  std::int64_t V, C, F, L, H, G, D;
  explicit Sizes(const json& c)
      : V(c.at("vocab_size")),
        C(c.at("hidden_size")),
        F(c.at("intermediate_size")),
        L(c.at("num_hidden_layers")),
        H(c.at("num_attention_heads")),
        G(c.at("num_key_value_heads")),
        D(c.value("head_dim", std::int64_t{0})) {}
  std::int64_t attention() const { return C * D * (2 * H + 2 * G); }
  std::int64_t qkv_bias() const { return D * (H + 2 * G); }
  std::int64_t gated(std::int64_t inner) const { return 3 * C * inner; }
  // `layers`: what all layers have.
  std::int64_t whole(std::int64_t layers, bool tied) const { return layers + V * C * (tied ? 1 : 2) + C; }
};

// A random config of a family, and its parameters, summed up from its layers.
struct SmallConfig {
  json config;
  std::int64_t count = 0;
};

SmallConfig phi3(Dice& dice) {
  SmallConfig small{some_shape(dice, "phi3")};
  small.config["sliding_window"] = 64;
  const Sizes s(small.config);
  small.count = s.whole(s.L * (s.attention() + s.gated(s.F) + 2 * s.C), false);
  return small;
}

SmallConfig gemma2(Dice& dice) {
  SmallConfig small{some_shape(dice, "gemma2")};
  small.config["hidden_act"] = small.config["hidden_activation"] = "gelu_pytorch_tanh";
  const Sizes s(small.config);
  small.count = s.whole(s.L * (s.attention() + s.gated(s.F) + 4 * s.C), true);
  return small;
}

SmallConfig gemma3(Dice& dice) {
  SmallConfig small{some_shape(dice, "gemma3_text")};
  small.config.erase("hidden_act");
  small.config["sliding_window"] = 64;
  const Sizes s(small.config);
  small.count = s.whole(s.L * (s.attention() + s.gated(s.F) + 4 * s.C + 2 * s.D), true);
  return small;
}

SmallConfig gpt_oss(Dice& dice) {
  SmallConfig small{some_shape(dice, "gpt_oss")};
  const std::int64_t E = dice.one_of({4, 8});
  small.config["num_local_experts"] = E;
  small.config["num_experts_per_tok"] = 2;
  const Sizes s(small.config);
  const std::int64_t attention = s.attention() + s.qkv_bias() + s.C + s.H;
  const std::int64_t experts = E * (s.gated(s.F) + 2 * s.F + s.C) + E * s.C + E;
  small.count = s.whole(s.L * (attention + experts + 2 * s.C), false);
  return small;
}

SmallConfig llama4(Dice& dice) {
  SmallConfig small{some_shape(dice, "llama4_text")};
  const std::int64_t E = dice.one_of({4, 8}), step = dice.one_of({1, 2}), dense = dice.one_of({64, 128});
  small.config["num_local_experts"] = E;
  small.config["interleave_moe_layer_step"] = step;
  small.config["intermediate_size_mlp"] = dense;
  const Sizes s(small.config);
  const std::int64_t routed = s.L / step;
  small.count = s.whole(s.L * (s.attention() + 2 * s.C) + routed * ((E + 1) * s.gated(s.F) + E * s.C) +
                            (s.L - routed) * s.gated(dense),
                        false);
  return small;
}

SmallConfig olmo2(Dice& dice) {
  SmallConfig small{some_shape(dice, "olmo2")};
  const Sizes s(small.config);
  small.count = s.whole(s.L * (s.attention() + s.gated(s.F) + 2 * s.C + s.D * (s.H + s.G)), false);
  return small;
}

SmallConfig glm4(Dice& dice) {
  SmallConfig small{some_shape(dice, "glm4")};
  const Sizes s(small.config);
  small.count = s.whole(s.L * (s.attention() + s.qkv_bias() + s.gated(s.F) + 4 * s.C), false);
  return small;
}

SmallConfig glm4_moe(Dice& dice) {
  SmallConfig small{some_shape(dice, "glm4_moe")};
  const std::int64_t E = dice.one_of({4, 8}), inner = 24;
  const bool normed = dice.once_in(2);
  small.config.update({{"n_routed_experts", E},
                       {"num_experts_per_tok", 2},
                       {"n_shared_experts", 1},
                       {"moe_intermediate_size", inner},
                       {"first_k_dense_replace", 1},
                       {"use_qk_norm", normed},
                       {"attention_bias", true}});
  const Sizes s(small.config);
  const std::int64_t each = s.attention() + s.qkv_bias() + 2 * s.C + (normed ? 2 * s.D : 0);
  small.count =
      s.whole(s.L * each + s.gated(s.F) + (s.L - 1) * ((E + 1) * s.gated(inner) + E * s.C + E), false);
  return small;
}

SmallConfig deepseek_v2(Dice& dice) {
  SmallConfig small{some_shape(dice, "deepseek_v2")};
  const std::int64_t E = 8, inner = 24, rank = 16, rope = 4, plain = 8, value = 6;
  const std::int64_t q_rank = dice.one_of({0, 20});
  small.config.update({{"n_routed_experts", E},
                       {"num_experts_per_tok", 2},
                       {"n_shared_experts", 2},
                       {"moe_intermediate_size", inner},
                       {"first_k_dense_replace", 1},
                       {"kv_lora_rank", rank},
                       {"qk_rope_head_dim", rope},
                       {"qk_nope_head_dim", plain},
                       {"v_head_dim", value},
                       {"topk_method", "greedy"}});
  small.config["q_lora_rank"] = q_rank > 0 ? json(q_rank) : json(nullptr);
  const Sizes s(small.config);
  const std::int64_t queries = s.H * (rope + plain);
  const std::int64_t each = (q_rank > 0 ? s.C * q_rank + q_rank + q_rank * queries : s.C * queries) +
                            s.C * (rank + rope) + rank + rank * s.H * (plain + value) + s.H * value * s.C +
                            2 * s.C;
  small.count = s.whole(s.L * each + s.gated(s.F) + (s.L - 1) * ((E + 2) * s.gated(inner) + E * s.C), false);
  return small;
}

using MakeConfig = SmallConfig (*)(Dice&);
const std::map<std::string, MakeConfig> kFamilies = {
    {"phi3", phi3},       {"gemma2", gemma2},     {"gemma3", gemma3},
    {"gpt_oss", gpt_oss}, {"llama4", llama4},     {"olmo2", olmo2},
    {"glm4", glm4},       {"glm4_moe", glm4_moe}, {"deepseek_v2", deepseek_v2}};

}  // namespace

TEST_CASE("random small configs of each family have the parameters of a straight sum") {
  for (const auto& [name, family] : kFamilies)
    for (unsigned seed = 1; seed <= 30; ++seed) {
      Dice dice(seed);
      const SmallConfig small = family(dice);
      INFO(name << " " << seed << ": " << small.config.dump());
      const Transformer t = read_config(small.config);
      CHECK(parameter_count(t) == small.count);
      CHECK(active_parameter_count(t) <= small.count);
      CHECK(parse_transformer(print(t)) == t);
    }
}

TEST_CASE("model FLOPs grow with every size of a config") {
  constexpr std::int64_t T = 512;
  for (const auto& [name, family] : kFamilies)
    for (unsigned seed = 1; seed <= 5; ++seed) {
      Dice dice(seed);
      const json config = family(dice).config;
      const double flops = model_flops_per_sequence(read_config(config), T);
      for (const char* size : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                               "num_attention_heads", "head_dim", "sliding_window", "moe_intermediate_size",
                               "num_experts_per_tok", "n_shared_experts", "kv_lora_rank", "v_head_dim"}) {
        if (!config.contains(size) || (name == "deepseek_v2" && std::string(size) == "head_dim")) continue;
        json larger = config;
        larger[size] = 2 * config[size].get<std::int64_t>();
        if (std::string(size) == "num_attention_heads" && name == "deepseek_v2")
          larger["num_key_value_heads"] = larger[size];
        INFO(name << " " << seed << " " << size << ": " << config.dump());
        CHECK(model_flops_per_sequence(read_config(larger), T) > flops);
      }
    }
}

TEST_CASE("default layers of a family are those that layer_types names") {
  Dice dice(1);
  const auto with_types = [](json config, const char* windowed, std::int64_t period) {
    json types = json::array();
    for (std::int64_t layer = 1; layer <= config["num_hidden_layers"]; ++layer)
      types.push_back(layer % period == 0 ? "full_attention" : windowed);
    config["layer_types"] = types;
    return config;
  };
  for (const auto& [name, windowed, period] :
       {std::tuple{"gemma2", "sliding_attention", 2}, std::tuple{"gemma3", "sliding_attention", 6},
        std::tuple{"gpt_oss", "sliding_attention", 2}, std::tuple{"llama4", "chunked_attention", 4}}) {
    json config = kFamilies.at(name)(dice).config;
    config["num_hidden_layers"] = 12;
    INFO(name);
    const Transformer t = read_config(config);
    CHECK(read_config(with_types(config, windowed, period)) == t);
    CHECK(std::int64_t(t.full_attention.size()) == 12 / period);
    CHECK_FALSE(t.sees_all(0));
    CHECK(t.sees_all(11));
    CHECK_FALSE(t.has_equal_layers());
  }
}

TEST_CASE("a chunk counts the pairs within it, a window no more than a chunk twice as wide") {
  for (const std::int64_t T : {1, 7, 24, 25}) {
    CHECK(attention_pairs({}, T, {.chunk = T}) == attention_pairs(T, 0));
    CHECK(attention_pairs({}, T, {.chunk = 1}) == static_cast<double>(T));
    double pairs = 0;  // the pairs of a chunk of 5, counted one by one, in the way of T*T
    for (std::int64_t query = 0; query < T; ++query)
      for (std::int64_t key = 0; key < T; ++key) pairs += query / 5 == key / 5 ? 1 : 0;
    CHECK(attention_pairs({}, T, {.chunk = 5}) == pairs);
    CHECK(attention_pairs({}, T, {.window = 5}) <= attention_pairs({}, T, {.chunk = 10}) + 25.0 * T);
  }
  CHECK(attention_pairs({4, 12}, 16, {.chunk = 5}) == 16 + 25 + 25 + 4);
}

TEST_CASE("rotation, theta and norms of queries follow the layer") {
  const Transformer scout = load_transformer("llama-4-scout");
  CHECK(scout.rotates(0));
  CHECK_FALSE(scout.rotates(3));
  CHECK(scout.norms_heads(0));
  CHECK_FALSE(scout.norms_heads(3));
  CHECK(scout.chunk(2) == 8192);
  CHECK(scout.chunk(3) == 0);
  CHECK_FALSE(load_transformer("llama-4-maverick").has_experts(0));
  CHECK(load_transformer("llama-4-maverick").has_experts(1));
  const Transformer gemma = load_transformer("gemma-3-27b");
  CHECK(gemma.rope_theta_of(0) == 10000);
  CHECK(gemma.rope_theta_of(5) == 1e6);
  CHECK(gemma.window(4) == 1024);
  CHECK(gemma.window(5) == 0);
  CHECK(gemma.score_width == 168);
  CHECK(load_transformer("phi-4-mini").rope_dim == 96);
  CHECK(load_transformer("phi-4-mini").sliding_window == 0);  // 262,144 tokens: more than there are positions
}

TEST_CASE("whole published models are their language part and what sees images") {
  // Totals of the weights on the Hugging Face hub (the `safetensors` entry of the hub's API for google/gemma-3-4b-it,
  // gemma-3-12b-it, gemma-3-27b-it, Llama-4-Scout-17B-16E and Llama-4-Maverick-17B-128E; 2025). Gemma 3's three models
  // have one vision part (SigLIP) and a projection of 1,152 elements to the hidden width, with a norm before it.
  const std::map<std::string, std::int64_t> totals = {
      {"gemma-3-4b", 4'300'079'472}, {"gemma-3-12b", 12'187'325'040}, {"gemma-3-27b", 27'432'406'640}};
  for (const auto& [name, total] : totals) {
    const Transformer t = load_transformer(name);
    INFO(name);
    CHECK(total - parameter_count(t) - 1152 * t.hidden - 1152 == 416'866'032);
  }
  // Both Llama 4 have one vision part.
  CHECK(108'641'793'536 - parameter_count(load_transformer("llama-4-scout")) == 871'932'416);
  CHECK(401'583'781'376 - parameter_count(load_transformer("llama-4-maverick")) == 871'932'416);
  // GLM-4.5 and GLM-4.5-Air come with a module for a second token, and its copy of the embedding and of the head
  // (zai-org/GLM-4.5 and GLM-4.5-Air, 2025-07).
  for (const auto& [name, total] :
       {std::pair{"glm-4.5", 358'337'791'296}, std::pair{"glm-4.5-air", 110'468'824'832}}) {
    const Transformer t = load_transformer(name);
    INFO(name);
    CHECK(parameter_count(t) + extra_prediction_count(t) + 2 * t.vocabulary * t.hidden == total);
  }
}

TEST_CASE("what would make a config another model is refused at its key") {
  struct Change {
    const char *family, *key;
    json value;
  };
  const Change changes[] = {
      {"phi3", "partial_rotary_factor", 1.5},
      {"phi3", "attention_bias", true},
      {"phi3", "hidden_act", "gelu"},
      {"gemma2", "hidden_activation", "relu"},
      {"gemma3", "use_bidirectional_attention", true},
      {"gemma3", "layer_types", json::array({"linear_attention"})},
      {"gpt_oss", "swiglu_limit", 5.0},
      {"llama4", "attention_chunk_size", nullptr},
      {"llama4", "no_rope_layers", json::array({1})},
      {"olmo2", "attention_bias", true},
      {"glm4", "hidden_act", "gelu"},
      {"deepseek_v2", "topk_method", "noaux_tc"},
      {"deepseek_v2", "norm_topk_prob", true},
      {"deepseek_v2", "scoring_func", "sigmoid"},
  };
  for (const Change& change : changes) {
    Dice dice(2);
    json config = kFamilies.at(change.family)(dice).config;
    config.erase(change.key);
    std::string text = config.dump();
    const std::string added = fmt::format(",\n\"{}\": {}}}", change.key, change.value.dump());
    text.replace(text.size() - 1, 1, added);
    INFO(change.family << ": " << text);
    try {
      read_hugging_face(parse_yaml(text, "config.json"), "model");
      CHECK(false);
    } catch (const Refusal& refusal) {
      CHECK(refusal.kind() == std::string("unsupported-model"));
      CHECK(refusal.where().line == 2);
    }
  }
}

TEST_CASE("older families refuse layers that they do not have") {
  Dice dice(3);
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3"}) {
    json config = some_shape(dice, type);
    config["num_hidden_layers"] = 2;
    config["layer_types"] = {"full_attention", "full_attention"};
    INFO(type);
    CHECK(read_config(config).has_equal_layers());
    config["layer_types"] = {"linear_attention", "full_attention"};
    CHECK_THROWS_AS(read_config(config), Refusal);
  }
  json config = some_shape(dice, "qwen3");
  config["num_hidden_layers"] = 2;
  config["use_sliding_window"] = true;
  config["sliding_window"] = 128;
  config["layer_types"] = {"full_attention", "sliding_attention"};
  CHECK(read_config(config).window(1) == 128);
  CHECK(read_config(config).window(0) == 0);
}
