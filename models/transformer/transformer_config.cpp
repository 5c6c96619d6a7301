// Reads a Transformer from an unchanged Hugging Face config.json: GPT-2, Llama, Mistral, Mixtral, Qwen2, Qwen3 (dense
// and with experts) and DeepSeek-V3. Weights and tokenizers are not read. Read next:
// models/transformer/transformer_text.cpp.
//
// Assumes: `rope_scaling` (Llama 3.1 and later) changes only the angles of the rotation or the scale of the scores.
// It is ignored, because no parameter, FLOP or byte depends on it. DeepSeek-V3's weights pair the rotated elements in
// their own order; Motley pairs the halves of the vector, which is the same function with rows permuted.
#include <fmt/format.h>

#include <algorithm>

#include "models/transformer/transformer_fields.hpp"
#include "models/transformer/transformer_text.hpp"

namespace motley {

Yaml Config::find(std::string_view key) const {
  const YamlEntry* entry = node_->find(key);
  return entry && entry->value->kind != YamlNode::Kind::null ? entry->value : nullptr;
}
std::int64_t Config::need(std::string_view key, IntegerRange range) const {
  const Yaml value = find(key);
  if (!value)
    throw Refusal(Exit::usage, "missing-key", node_->where,
                  fmt::format("this config.json needs a value for `{}`", key));
  return to_integer(value, range);
}
std::int64_t Config::integer(std::string_view key, IntegerRange range, std::int64_t otherwise) const {
  const Yaml value = find(key);
  return value ? to_integer(value, range) : otherwise;
}
double Config::number(std::string_view key, double otherwise) const {
  const Yaml value = find(key);
  return value ? to_number(value, Sign::positive) : otherwise;
}
bool Config::truth(std::string_view key, bool otherwise) const {
  const Yaml value = find(key);
  return value ? to_bool(value) : otherwise;
}
std::string Config::text(std::string_view key, const std::string& otherwise) const {
  const Yaml value = find(key);
  return value ? to_text(value) : otherwise;
}
std::vector<std::int64_t> Config::layers(std::string_view key) const {
  std::vector<std::int64_t> numbers;
  if (const Yaml value = find(key)) LayerNumbers{}.read(value, numbers);
  return numbers;
}
void Config::require(std::string_view key, const std::vector<std::string>& supported) const {
  const Yaml value = find(key);
  if (!value) return;
  for (const std::string& known : supported)
    if (to_text(value) == known) return;
  throw Refusal(Exit::usage, "unsupported-model", value->where,
                fmt::format("{} `{}` is not supported", key, to_text(value)),
                fmt::format("supported: {}", fmt::join(supported, ", ")));
}

namespace {

void read_gpt2(const Config& config, Transformer& t) {
  config.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.require("scale_attn_by_inverse_layer_idx", {"false"});
  config.require("scale_attn_weights", {"true"});
  config.require("add_cross_attention", {"false"});
  t.hidden = config.need("n_embd", kWidth);
  t.layers = config.need("n_layer", kLayers);
  t.heads = config.need("n_head", kWidth);
  t.kv_heads = t.heads;
  t.head_dim = default_head_dim(t);
  t.ffn = config.integer("n_inner", kRows, 4 * t.hidden);
  t.max_positions = config.need("n_positions", kRows);
  t.tied_embeddings = config.truth("tie_word_embeddings", true);
  t.norm_epsilon = config.number("layer_norm_epsilon", 1e-5);
}

// Reads the keys that Llama and all families derived from it share.
void read_block(const Config& config, Transformer& t) {
  config.require("hidden_act", {"silu"});
  t.hidden = config.need("hidden_size", kWidth);
  t.layers = config.need("num_hidden_layers", kLayers);
  t.heads = config.need("num_attention_heads", kWidth);
  t.kv_heads = config.integer("num_key_value_heads", kWidth, t.heads);
  t.head_dim = config.integer("head_dim", kWidth, default_head_dim(t));
  t.ffn = config.need("intermediate_size", kRows);
  t.max_positions = config.integer("max_position_embeddings", kRows, 2048);
  t.tied_embeddings = config.truth("tie_word_embeddings", false);
  t.norm_epsilon = config.number("rms_norm_eps", 1e-6);
  t.rope_theta = config.number("rope_theta", 10000.0);
  const Yaml rope = config.find("rope_parameters");  // later versions of Transformers write the key there
  if (rope && rope->is_map()) t.rope_theta = Config(rope).number("rope_theta", t.rope_theta);
}

void read_llama(const Config& config, Transformer& t) {
  read_block(config, t);
  t.qkv_bias = t.output_bias = config.truth("attention_bias", false);
  t.ffn_bias = config.truth("mlp_bias", false);
}

void read_mistral(const Config& config, Transformer& t) {
  read_block(config, t);
  t.sliding_window = config.integer("sliding_window", kRows, 0);
}

void read_mixtral(const Config& config, Transformer& t) {
  read_mistral(config, t);
  t.experts.count = config.need("num_local_experts", kWidth);
  t.experts.per_token = config.need("num_experts_per_tok", kWidth);
  t.experts.ffn = t.ffn;
  t.experts.normalise = true;
}

// Qwen2's window is off by default; the first max_window_layers layers never have it.
void read_qwen_window(const Config& config, Transformer& t) {
  if (!config.truth("use_sliding_window", false)) return;
  t.sliding_window = config.integer("sliding_window", kRows, 4096);
  const std::int64_t full = config.integer("max_window_layers", {0, kLayers.most}, 28);
  for (std::int64_t layer = 0; layer < std::min(full, t.layers); ++layer) t.full_attention.push_back(layer);
  if (static_cast<std::int64_t>(t.full_attention.size()) == t.layers) {
    t.full_attention.clear();
    t.sliding_window = 0;
  }
}

void read_qwen2(const Config& config, Transformer& t) {
  read_block(config, t);
  t.qkv_bias = true;
  read_qwen_window(config, t);
}

void read_qwen3(const Config& config, Transformer& t) {
  read_block(config, t);
  t.head_dim = config.integer("head_dim", kWidth, 128);
  t.qkv_bias = t.output_bias = config.truth("attention_bias", false);
  t.qk_norm = true;
  read_qwen_window(config, t);
}

void read_qwen_experts(const Config& config, Transformer& t) {
  t.experts.count = config.need("num_experts", kWidth);
  t.experts.per_token = config.need("num_experts_per_tok", kWidth);
  t.experts.ffn = config.need("moe_intermediate_size", kRows);
  const std::int64_t step = config.integer("decoder_sparse_step", kLayers, 1);
  const std::vector<std::int64_t> dense = config.layers("mlp_only_layers");
  for (std::int64_t layer = 0; layer < t.layers; ++layer)
    if ((layer + 1) % step != 0 || std::binary_search(dense.begin(), dense.end(), layer))
      t.experts.dense_layers.push_back(layer);
}

void read_qwen2_moe(const Config& config, Transformer& t) {
  read_qwen2(config, t);
  t.qkv_bias = config.truth("qkv_bias", true);
  read_qwen_experts(config, t);
  t.experts.normalise = config.truth("norm_topk_prob", false);
  t.experts.shared_ffn = config.need("shared_expert_intermediate_size", kRows);
  t.experts.shared_gate = true;
}

void read_qwen3_moe(const Config& config, Transformer& t) {
  read_qwen3(config, t);
  read_qwen_experts(config, t);
  t.experts.normalise = config.truth("norm_topk_prob", false);
}

void read_latent_attention(const Config& config, Transformer& t) {
  t.latent.q_rank = config.integer("q_lora_rank", kWidth, 0);
  t.latent.kv_rank = config.need("kv_lora_rank", kWidth);
  t.latent.rope_dim = config.need("qk_rope_head_dim", kWidth);
  t.latent.value_dim = config.need("v_head_dim", kWidth);
  t.head_dim = config.need("qk_nope_head_dim", kWidth) + t.latent.rope_dim;
  t.kv_heads = t.heads;
}

void read_deepseek_v3(const Config& config, Transformer& t) {
  config.require("attention_bias", {"false"});
  config.require("scoring_func", {"sigmoid"});
  config.require("topk_method", {"noaux_tc"});
  config.require("moe_layer_freq", {"1"});
  read_block(config, t);
  read_latent_attention(config, t);
  Experts& e = t.experts;
  e.count = config.need("n_routed_experts", kWidth);
  e.per_token = config.need("num_experts_per_tok", kWidth);
  e.ffn = config.need("moe_intermediate_size", kRows);
  e.shared_ffn = e.ffn * config.integer("n_shared_experts", {0, 1024}, 0);
  e.scores = RouterScores::sigmoid;
  e.normalise = config.truth("norm_topk_prob", true);
  e.scale = config.number("routed_scaling_factor", 1.0);
  e.balancing_bias = true;
  e.groups = config.integer("n_group", kWidth, 1);
  e.groups_per_token = config.integer("topk_group", kWidth, 1);
  const std::int64_t dense = config.integer("first_k_dense_replace", {0, kLayers.most}, 0);
  for (std::int64_t layer = 0; layer < std::min(dense, t.layers); ++layer) e.dense_layers.push_back(layer);
  t.extra_predictions = config.integer("num_nextn_predict_layers", {0, 16}, 0);
}

struct Reader {
  const char* model_type;
  void (*read)(const Config&, Transformer&);
};
constexpr Reader kReaders[] = {
    {"gpt2", read_gpt2},       {"llama", read_llama},         {"mistral", read_mistral},
    {"mixtral", read_mixtral}, {"qwen2", read_qwen2},         {"qwen2_moe", read_qwen2_moe},
    {"qwen3", read_qwen3},     {"qwen3_moe", read_qwen3_moe}, {"deepseek_v3", read_deepseek_v3},
};

// Python's json writes NaN and Infinity, which are not JSON; in a config.json they are mistakes.
void refuse_not_finite(const Yaml& node) {
  double value = 0;
  if (node->is_scalar() && !node->quoted && read_number(node->text, value) == NumberFault::not_finite)
    throw Refusal(Exit::usage, "not-finite", node->where, describe(NumberFault::not_finite, node->text));
  for (const Yaml& item : node->items) refuse_not_finite(item);
  for (const YamlEntry& entry : node->entries) refuse_not_finite(entry.value);
}

}  // namespace

Transformer read_hugging_face(const Yaml& node, const std::string& default_name) {
  if (!node->is_map())
    throw Refusal(Exit::usage, "wrong-type", node->where,
                  fmt::format("expected a config.json (a map), value {}", describe(node)));
  refuse_not_finite(node);
  const Config config(node);
  const Yaml type = config.find("model_type");
  if (!type)
    throw Refusal(Exit::usage, "missing-key", node->where, "this config.json needs a value for `model_type`");
  std::vector<std::string> known;
  for (const Reader& reader : kReaders) known.emplace_back(reader.model_type);
  config.require("model_type", known);
  Transformer t;
  t.name = default_name;
  t.source = config.text("_source", "its config.json");
  t.family = to_text(type) == "gpt2" ? Family::gpt2 : Family::llama;
  t.vocabulary = config.need("vocab_size", kRows);
  for (const Reader& reader : kReaders)
    if (to_text(type) == reader.model_type) reader.read(config, t);
  refuse_impossible(t, node->where);
  return t;
}

}  // namespace motley
