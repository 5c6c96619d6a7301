// Readers of a Hugging Face config.json whose layers vary from Llama's: Phi-3, Gemma, gpt-oss, Llama 4, OLMo 2, GLM-4
// and DeepSeek-V2. Defaults of absent keys are those of each family's configuration class in Transformers 4.57
// (2025-10).
//
// Assumes: the temperature by which Llama 4 multiplies queries at far positions, Gemma's 1 + w in place of the weight
// of a norm, and the scaling of rotary angles change no parameter, FLOP or byte.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/transformer/config_readers.hpp"

namespace motley {
namespace {

// The layers of which the last of every `period` sees all tokens.
void see_all_each(std::int64_t period, Transformer& t) {
  for (std::int64_t layer = period - 1; layer < t.layers; layer += period) t.full_attention.push_back(layer);
  drop_unused_window(t);
}

// The fused weights of queries, keys and values, and of gate and up, are parameters of the same size here.
void read_phi3(const Config& config, Transformer& t) {
  config.require("attention_bias", {"false"});
  read_block(config, t);
  read_rotated_part(config, t, 1);
  t.sliding_window = config.integer("sliding_window", kRows, 0);
  if (t.sliding_window >= t.max_positions) t.sliding_window = 0;  // it hides nothing
  read_layer_types(config, t, "sliding_attention");
}

void read_gemma(const Config& config, Transformer& t) {
  config.require("attention_bias", {"false"});
  config.require(config.find("hidden_activation") ? "hidden_activation" : "hidden_act",
                 {"gelu_pytorch_tanh", "gelu"});
  config.require("use_bidirectional_attention", {"false"});
  read_shape(config, t);
  t.head_dim = config.integer("head_dim", kWidth, 256);
  t.tied_embeddings = config.truth("tie_word_embeddings", true);
  t.max_positions = config.integer("max_position_embeddings", kRows, 8192);
  t.activation = GateActivation::gelu;
  t.embedding_scale = std::sqrt(static_cast<double>(t.hidden));
}

// A cap on scores or logits: 0 where the config says that there is none.
double cap(const Config& config, std::string_view key, double otherwise) {
  return config.has_null(key) ? 0 : config.number(key, otherwise);
}

// What Gemma 2 and Gemma 3 share.
void read_gemma_attention(const Config& config, Transformer& t) {
  t.norms = NormPlaces::both;
  const std::int64_t width = config.integer("query_pre_attn_scalar", kWidth, 256);
  if (width != t.head_dim) t.score_width = width;
  t.sliding_window = config.integer("sliding_window", kRows, 4096);
}

void read_gemma2(const Config& config, Transformer& t) {
  read_gemma(config, t);
  read_gemma_attention(config, t);
  t.attention_softcap = cap(config, "attn_logit_softcapping", 50);
  t.logit_softcap = cap(config, "final_logit_softcapping", 30);
  if (!read_layer_types(config, t, "sliding_attention")) see_all_each(2, t);
}

// Published configs leave out what Transformers' class has by default.
void read_gemma3_text(const Config& config, Transformer& t) {
  config.require("hidden_activation", {"gelu_pytorch_tanh"});
  config.require("attention_bias", {"false"});
  config.require("use_bidirectional_attention", {"false"});
  t.hidden = config.integer("hidden_size", kWidth, 2304);
  t.layers = config.integer("num_hidden_layers", kLayers, 26);
  t.heads = config.integer("num_attention_heads", kWidth, 8);
  t.kv_heads = config.integer("num_key_value_heads", kWidth, 4);
  t.head_dim = config.integer("head_dim", kWidth, 256);
  t.ffn = config.integer("intermediate_size", kRows, 9216);
  t.max_positions = config.integer("max_position_embeddings", kRows, 131'072);
  t.tied_embeddings = config.truth("tie_word_embeddings", true);
  t.norm_epsilon = config.number("rms_norm_eps", 1e-6);
  t.activation = GateActivation::gelu;
  t.embedding_scale = std::sqrt(static_cast<double>(t.hidden));
  read_gemma_attention(config, t);
  t.qk_norm = true;
  t.attention_softcap = cap(config, "attn_logit_softcapping", 0);
  t.logit_softcap = cap(config, "final_logit_softcapping", 0);
  t.rope_theta = config.number("rope_theta", 1e6);
  t.windowed_rope_theta = config.number("rope_local_base_freq", 10000);
  const Yaml rope = config.find("rope_parameters");  // later versions of Transformers have both there
  if (rope && rope->is_map()) {
    const auto theta_of = [&](const char* layers, double& theta) {
      const Yaml part = Config(rope).find(layers);
      if (part && part->is_map()) theta = Config(part).number("rope_theta", theta);
    };
    theta_of("full_attention", t.rope_theta);
    theta_of("sliding_attention", t.windowed_rope_theta);
  }
  if (!read_layer_types(config, t, "sliding_attention"))
    see_all_each(config.integer("sliding_window_pattern", kLayers, 6), t);
}

void read_gpt_oss(const Config& config, Transformer& t) {
  config.require("swiglu_limit", {"7.0", "7"});
  read_block(config, t);
  t.head_dim = config.integer("head_dim", kWidth, 64);
  t.qkv_bias = t.output_bias = config.truth("attention_bias", true);
  t.activation = GateActivation::clamped_silu;
  t.attention_sinks = true;
  t.experts.count = config.need("num_local_experts", kExperts);
  t.experts.per_token = config.find("num_experts_per_tok") ? config.need("num_experts_per_tok", kWidth)
                                                           : config.need("experts_per_token", kWidth);
  t.experts.ffn = t.ffn;
  t.experts.bias = t.experts.router_bias = true;
  t.experts.normalise = true;  // a softmax over the scores of the chosen experts
  t.sliding_window = config.integer("sliding_window", kRows, 128);
  if (!read_layer_types(config, t, "sliding_attention")) see_all_each(2, t);
}

// Layers without RoPE are those that see all tokens: `no_rope_layers` has 1 for a layer that rotates.
void read_llama4_sight(const Config& config, Transformer& t) {
  const std::int64_t period = config.integer("no_rope_layer_interval", kLayers, 4);
  std::vector<std::int64_t> still;
  const Yaml list = config.find("no_rope_layers");
  const std::vector<Yaml> given = list ? to_sequence(list) : std::vector<Yaml>{};
  if (!given.empty() && static_cast<std::int64_t>(given.size()) != t.layers)
    throw Refusal(Exit::usage, "unsupported-model", list->where,
                  fmt::format("no_rope_layers has {} items for {} layers", given.size(), t.layers));
  for (std::int64_t layer = 0; layer < t.layers; ++layer)
    if (given.empty() ? (layer + 1) % period == 0
                      : to_integer(given[static_cast<std::size_t>(layer)], {0, 1}) == 0)
      still.push_back(layer);
  t.attention_chunk =
      config.has_null("attention_chunk_size") ? 0 : config.integer("attention_chunk_size", kRows, 8192);
  if (!read_layer_types(config, t, "chunked_attention")) {
    t.full_attention = still;
    t.full_attention_rope = still.empty();
    if (t.attention_chunk > 0 && static_cast<std::int64_t>(still.size()) < t.layers) return;
  }
  if (t.attention_chunk == 0 || t.full_attention != still)
    throw Refusal(Exit::usage, "unsupported-model",
                  config.where(t.attention_chunk == 0 ? "attention_chunk_size" : "layer_types"),
                  "the layers without chunks must be those without rotary positions",
                  "layer_types and no_rope_layers must name the same layers");
  t.full_attention_rope = still.empty();
}

void read_llama4_text(const Config& config, Transformer& t) {
  read_block(config, t);
  t.head_dim = config.integer("head_dim", kWidth, 128);
  t.qkv_bias = t.output_bias = config.truth("attention_bias", false);
  if (config.truth("use_qk_norm", true)) {
    t.qk_norm = true;
    t.qk_norm_form = QkNormForm::unweighted;
  }
  Experts& e = t.experts;
  e.count = config.need("num_local_experts", kExperts);
  e.per_token = config.integer("num_experts_per_tok", kWidth, 1);
  e.ffn = e.shared_ffn = t.ffn;
  e.scores = RouterScores::sigmoid;
  e.weighted_inputs = true;
  t.ffn = config.integer("intermediate_size_mlp", kRows, 16384);
  const std::int64_t step = config.integer("interleave_moe_layer_step", kLayers, 1);
  const std::vector<std::int64_t> routed = config.layers("moe_layers");
  for (std::int64_t layer = 0; layer < t.layers; ++layer)
    if (config.find("moe_layers") ? !std::binary_search(routed.begin(), routed.end(), layer)
                                  : (layer + 1) % step != 0)
      e.dense_layers.push_back(layer);
  read_llama4_sight(config, t);
}

void read_olmo2(const Config& config, Transformer& t) {
  config.require("attention_bias", {"false"});
  read_block(config, t);
  t.norms = NormPlaces::after;
  t.qk_norm = true;
  t.qk_norm_form = QkNormForm::all_heads;
  read_layer_types(config, t, "");
}

// Only queries, keys and values have biases in GLM-4.
void read_glm(const Config& config, Transformer& t) {
  read_block(config, t);
  t.head_dim = config.integer("head_dim", kWidth, 128);
  t.qkv_bias = config.truth("attention_bias", true);
  read_rotated_part(config, t, 0.5);
  read_layer_types(config, t, "");
}

void read_glm4(const Config& config, Transformer& t) {
  read_glm(config, t);
  t.norms = NormPlaces::both;
}

void read_glm4_moe(const Config& config, Transformer& t) {
  read_block(config, t);
  t.qkv_bias = config.truth("attention_bias", false);
  t.qk_norm = config.truth("use_qk_norm", false);
  read_rotated_part(config, t, 0.5);
  read_deepseek_experts(config, t);
  t.experts.scores = RouterScores::sigmoid;
  t.experts.normalise = config.truth("norm_topk_prob", true);
  t.experts.balancing_bias = true;
  t.extra_predictions = config.integer("num_nextn_predict_layers", {0, 16}, 0);
}

// The form in which GLM-4 9B was published first, with keys of its own.
void read_chatglm(const Config& config, Transformer& t) {
  config.require("rmsnorm", {"true"});
  config.require("post_layer_norm", {"true"});  // the norm after the last layer
  config.require("add_bias_linear", {"false"});
  config.require("apply_residual_connection_post_layernorm", {"false"});
  config.require("original_rope", {"true"});
  t.hidden = config.need("hidden_size", kWidth);
  t.layers = config.need("num_layers", kLayers);
  t.heads = config.need("num_attention_heads", kWidth);
  t.head_dim = config.integer("kv_channels", kWidth, default_head_dim(t));
  t.kv_heads =
      config.truth("multi_query_attention", false) ? config.need("multi_query_group_num", kWidth) : t.heads;
  t.ffn = config.need("ffn_hidden_size", kRows);
  t.max_positions = config.integer("seq_length", kRows, 2048);
  t.tied_embeddings = config.truth("tie_word_embeddings", false);
  t.norm_epsilon = config.number("layernorm_epsilon", 1e-5);
  t.rope_theta = 10000 * config.number("rope_ratio", 1);
  t.qkv_bias = config.truth("add_qkv_bias", false);
  t.rope_dim = t.head_dim / 2;
}

void read_deepseek_v2(const Config& config, Transformer& t) {
  config.require("attention_bias", {"false"});
  config.require("scoring_func", {"softmax"});
  config.require("topk_method", {"greedy", "group_limited_greedy"});
  config.require("moe_layer_freq", {"1"});
  config.require("norm_topk_prob", {"false"});
  read_block(config, t);
  read_latent_attention(config, t);
  read_deepseek_experts(config, t);
  if (config.text("topk_method", "greedy") == "greedy") t.experts.groups = t.experts.groups_per_token = 1;
}

}  // namespace

std::vector<ConfigReader> variant_readers() {
  return {{"phi3", read_phi3},
          {"gemma", read_gemma},
          {"gemma2", read_gemma2},
          {"gemma3_text", read_gemma3_text, "vocab_size", 262'208},
          {"gemma3", read_gemma3_text, "vocab_size", 262'208, "gemma3_text"},
          {"gpt_oss", read_gpt_oss},
          {"llama4_text", read_llama4_text},
          {"llama4", read_llama4_text, "vocab_size", 0, "llama4_text"},
          {"olmo2", read_olmo2},
          {"glm", read_glm},
          {"glm4", read_glm4},
          {"glm4_moe", read_glm4_moe},
          {"chatglm", read_chatglm, "padded_vocab_size"},
          {"deepseek_v2", read_deepseek_v2}};
}

}  // namespace motley
