// Reads a Transformer from an unchanged Hugging Face config.json: GPT-2, Llama, Mistral, Mixtral, Qwen2, Qwen3 (dense
// and with experts) and DeepSeek-V3 here, others in models/transformer/config_variants.cpp. Of a model that also sees
// images the language part is read. Weights and tokenizers are not read.
//
// Assumes: `rope_scaling` (Llama 3.1 and later) changes only the angles of the rotation or the scale of the scores.
// It is ignored, because no parameter, FLOP or byte depends on it. DeepSeek-V3's weights pair the rotated elements in
// their own order; Motley pairs the halves of the vector, which is the same function with rows permuted.
#include <fmt/format.h>

#include <algorithm>

#include "models/transformer/config_readers.hpp"
#include "models/transformer/transformer_fields.hpp"
#include "models/transformer/transformer_text.hpp"

namespace motley {

Yaml Config::find(std::string_view key) const {
  const YamlEntry* entry = node_->find(key);
  return entry && entry->value->kind != YamlNode::Kind::null ? entry->value : nullptr;
}
Location Config::where(std::string_view key) const {
  const YamlEntry* entry = node_->find(key);
  return entry ? entry->value->where : node_->where;
}
bool Config::has_null(std::string_view key) const {
  const YamlEntry* entry = node_->find(key);
  return entry && entry->value->kind == YamlNode::Kind::null;
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

void read_shape(const Config& config, Transformer& t) {
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

void read_block(const Config& config, Transformer& t) {
  config.require("hidden_act", {"silu"});
  read_shape(config, t);
}

void drop_unused_window(Transformer& t) {
  if (static_cast<std::int64_t>(t.full_attention.size()) < t.layers &&
      (t.sliding_window > 0 || t.attention_chunk > 0))
    return;
  t.full_attention.clear();
  t.sliding_window = t.attention_chunk = 0;
  t.windowed_rope_theta = 0;
}

bool read_layer_types(const Config& config, Transformer& t, const char* windowed) {
  const Yaml list = config.find("layer_types");
  if (!list) return false;
  const std::vector<Yaml> types = to_sequence(list);
  if (static_cast<std::int64_t>(types.size()) != t.layers)
    throw Refusal(Exit::usage, "unsupported-model", list->where,
                  fmt::format("layer_types has {} items for {} layers", types.size(), t.layers));
  t.full_attention.clear();
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    const std::string type = to_text(types[layer]);
    const bool full = type == "full_attention", has_window = t.sliding_window > 0 || t.attention_chunk > 0;
    if (!full && (type != windowed || !has_window))
      throw Refusal(
          Exit::usage, "unsupported-model", types[layer]->where,
          fmt::format("layer_types `{}` is not supported{}", type,
                      type == windowed ? " in a model without that window" : ""),
          fmt::format("supported: full_attention{}{}", has_window ? ", " : "", has_window ? windowed : ""));
    if (full) t.full_attention.push_back(static_cast<std::int64_t>(layer));
  }
  drop_unused_window(t);
  return true;
}

void read_rotated_part(const Config& config, Transformer& t, double otherwise) {
  double part = config.number("partial_rotary_factor", otherwise);
  const Yaml rope = config.find("rope_parameters");
  if (rope && rope->is_map()) part = Config(rope).number("partial_rotary_factor", part);
  const double elements = static_cast<double>(t.head_dim) * part;
  if (elements >= 2 && elements < static_cast<double>(t.head_dim))
    t.rope_dim = static_cast<std::int64_t>(elements);
  else if (part != 1)
    throw Refusal(Exit::usage, "unsupported-model", config.where("partial_rotary_factor"),
                  fmt::format("partial_rotary_factor {:g} rotates {:g} of the {} elements of a head", part,
                              elements, t.head_dim),
                  "above 0, at most 1");
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

void read_llama(const Config& config, Transformer& t) {
  read_block(config, t);
  t.qkv_bias = t.output_bias = config.truth("attention_bias", false);
  t.ffn_bias = config.truth("mlp_bias", false);
  read_layer_types(config, t, "");
}

void read_mistral(const Config& config, Transformer& t) {
  read_block(config, t);
  t.sliding_window = config.integer("sliding_window", kRows, 0);
  read_layer_types(config, t, "sliding_attention");
}

void read_mixtral(const Config& config, Transformer& t) {
  read_mistral(config, t);
  t.experts.count = config.need("num_local_experts", kExperts);
  t.experts.per_token = config.need("num_experts_per_tok", kWidth);
  t.experts.ffn = t.ffn;
  t.experts.normalise = true;
}

// Qwen2's window is off by default; the first max_window_layers layers never have it.
void read_qwen_window(const Config& config, Transformer& t) {
  if (config.truth("use_sliding_window", false))
    t.sliding_window = config.integer("sliding_window", kRows, 4096);
  if (read_layer_types(config, t, "sliding_attention") || t.sliding_window == 0) return;
  const std::int64_t full = config.integer("max_window_layers", {0, kLayers.most}, 28);
  for (std::int64_t layer = 0; layer < std::min(full, t.layers); ++layer) t.full_attention.push_back(layer);
  drop_unused_window(t);
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
  t.experts.count = config.need("num_experts", kExperts);
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

void read_deepseek_v3(const Config& config, Transformer& t) {
  config.require("attention_bias", {"false"});
  config.require("scoring_func", {"sigmoid"});
  config.require("topk_method", {"noaux_tc"});
  config.require("moe_layer_freq", {"1"});
  read_block(config, t);
  read_latent_attention(config, t);
  read_deepseek_experts(config, t);
  t.experts.scores = RouterScores::sigmoid;
  t.experts.normalise = config.truth("norm_topk_prob", true);
  t.experts.balancing_bias = true;
  t.extra_predictions = config.integer("num_nextn_predict_layers", {0, 16}, 0);
}

const std::vector<ConfigReader>& readers() {
  static const std::vector<ConfigReader> all = [] {
    std::vector<ConfigReader> list = {
        {"gpt2", read_gpt2},           {"llama", read_llama},         {"mistral", read_mistral},
        {"mixtral", read_mixtral},     {"qwen2", read_qwen2},         {"qwen2_moe", read_qwen2_moe},
        {"qwen3", read_qwen3},         {"qwen3_moe", read_qwen3_moe}, {"deepseek_v3", read_deepseek_v3},
        {"kimi_k2", read_deepseek_v3},  // the same architecture (arXiv:2507.20534, section 2.3)
    };
    for (const ConfigReader& reader : variant_readers()) list.push_back(reader);
    return list;
  }();
  return all;
}

// Python's json writes NaN and Infinity, which are not JSON; in a config.json they are mistakes.
void refuse_not_finite(const Yaml& node) {
  double value = 0;
  if (node->is_scalar() && !node->quoted && read_number(node->text, value) == NumberFault::not_finite)
    throw Refusal(Exit::usage, "not-finite", node->where, describe(NumberFault::not_finite, node->text));
  for (const Yaml& item : node->items) refuse_not_finite(item);
  for (const YamlEntry& entry : node->entries) refuse_not_finite(entry.value);
}

// The config of the part that is a language model.
Config language_config(const Config& config, const ConfigReader& reader) {
  if (reader.language_part == nullptr) return config;
  const Yaml text = config.find("text_config");
  if (!text || !text->is_map())
    throw Refusal(Exit::usage, "missing-key", text ? text->where : config.where("model_type"),
                  fmt::format("a config.json of `{}` needs a map `text_config`, its language model",
                              reader.model_type));
  Config part(text);
  part.require("model_type", {reader.language_part});
  return part;
}

}  // namespace

void read_latent_attention(const Config& config, Transformer& t) {
  t.latent.q_rank = config.integer("q_lora_rank", kWidth, 0);
  t.latent.kv_rank = config.need("kv_lora_rank", kWidth);
  t.latent.rope_dim = config.need("qk_rope_head_dim", kWidth);
  t.latent.value_dim = config.need("v_head_dim", kWidth);
  t.head_dim = config.need("qk_nope_head_dim", kWidth) + t.latent.rope_dim;
  t.kv_heads = t.heads;
}

void read_deepseek_experts(const Config& config, Transformer& t) {
  Experts& e = t.experts;
  e.count = config.need("n_routed_experts", kExperts);
  e.per_token = config.need("num_experts_per_tok", kWidth);
  e.ffn = config.need("moe_intermediate_size", kRows);
  e.shared_ffn = e.ffn * config.integer("n_shared_experts", {0, 1024}, 0);
  e.scale = config.number("routed_scaling_factor", 1.0);
  e.groups = config.integer("n_group", kWidth, 1);
  e.groups_per_token = config.integer("topk_group", kWidth, 1);
  const std::int64_t dense = config.integer("first_k_dense_replace", {0, kLayers.most}, 0);
  for (std::int64_t layer = 0; layer < std::min(dense, t.layers); ++layer) e.dense_layers.push_back(layer);
}

Transformer read_hugging_face(const Yaml& node, const std::string& default_name) {
  if (!node->is_map())
    throw Refusal(Exit::usage, "wrong-type", node->where,
                  fmt::format("expected a config.json (a map), found {}", describe(node)));
  refuse_not_finite(node);
  const Config config(node);
  const Yaml type = config.find("model_type");
  if (!type)
    throw Refusal(Exit::usage, "missing-key", node->where, "this config.json needs a value for `model_type`");
  std::vector<std::string> known;
  for (const ConfigReader& reader : readers()) known.emplace_back(reader.model_type);
  config.require("model_type", known);
  const ConfigReader& reader =
      *std::find_if(readers().begin(), readers().end(),
                    [&](const ConfigReader& each) { return to_text(type) == each.model_type; });
  const Config language = language_config(config, reader);
  Transformer t;
  t.name = default_name;
  t.source = config.text(
      "_source", reader.language_part ? "its config.json, the language model alone" : "its config.json");
  t.family = to_text(type) == "gpt2" ? Family::gpt2 : Family::llama;
  t.vocabulary = reader.vocabulary > 0 ? language.integer(reader.vocabulary_key, kRows, reader.vocabulary)
                                       : language.need(reader.vocabulary_key, kRows);
  reader.read(language, t);
  refuse_impossible(t, node->where);
  return t;
}

}  // namespace motley
