// A Transformer from our own keys, and back. What a field's default says is not printed, beyond the first figures.
// Read next: models/transformer_config.cpp (a Hugging Face config.json).
#include "models/transformer_text.hpp"

#include <fmt/format.h>

#include <array>

#include "models/describe_text.hpp"
#include "models/scenario.hpp"
#include "models/units.hpp"

namespace motley {

std::int64_t default_head_dim(const Transformer& t) {
  return t.hidden % t.heads == 0 ? t.hidden / t.heads : 0;
}

namespace {

[[noreturn]] void refuse_model(const Location& where, const std::string& message,
                               const std::string& hint = {}) {
  throw Refusal(Exit::usage, "impossible-model", where, message, hint);
}

void refuse_impossible_heads(const Transformer& t, const Location& where) {
  if (t.head_dim < 1)
    refuse_model(where, fmt::format("hidden {} is not a multiple of heads {}", t.hidden, t.heads),
                 "or give head_dim");
  if (t.heads % t.kv_heads != 0)
    refuse_model(where, fmt::format("heads {} are not a multiple of kv_heads {}", t.heads, t.kv_heads));
  if (t.family == Family::gpt2 && t.kv_heads != t.heads)
    refuse_model(where, fmt::format("gpt2 has no grouped-query attention: kv_heads {} but heads {}",
                                    t.kv_heads, t.heads));
  if (t.family == Family::llama && t.head_dim % 2 != 0)
    refuse_model(where, fmt::format("rotary positions need an even head_dim, not {}", t.head_dim));
  if (!t.latent.used()) return;
  if (t.latent.rope_dim % 2 != 0 || t.latent.rope_dim >= t.head_dim)
    refuse_model(where, fmt::format("latent attention needs an even rope_dim below head_dim {}, not {}",
                                    t.head_dim, t.latent.rope_dim));
  if (t.kv_heads != t.heads || t.qk_norm || t.qkv_bias || t.sliding_window > 0)
    refuse_model(where,
                 "latent attention has a key and a value for every head, and neither qkv_bias, qk_norm nor "
                 "sliding_window");
}

void refuse_impossible_experts(const Transformer& t, const Location& where) {
  const Experts& e = t.experts;
  if (e.count == 0) return;
  if (e.per_token > e.count)
    refuse_model(where, fmt::format("{} experts a token of {} experts", e.per_token, e.count));
  if (e.count % e.groups != 0 || e.groups_per_token > e.groups ||
      e.per_token > e.count / e.groups * e.groups_per_token)
    refuse_model(where, fmt::format("{} experts a token from {} of {} groups of {} experts", e.per_token,
                                    e.groups_per_token, e.groups, e.count));
  constexpr double kMostParameters = 0x1p60;  // what still counts exactly, with room
  if (3.0 * static_cast<double>(e.count) * static_cast<double>(e.ffn) * static_cast<double>(t.hidden) *
          static_cast<double>(t.layers) >
      kMostParameters)
    refuse_model(where, fmt::format("{} layers of {} experts of {} x {} cannot be counted", t.layers, e.count,
                                    e.ffn, t.hidden));
}

void refuse_impossible_layers(const Transformer& t, const std::vector<std::int64_t>& layers, const char* what,
                              const Location& where) {
  if (!layers.empty() && layers.back() >= t.layers)
    refuse_model(where, fmt::format("{} names layer {}, the last is {}", what, layers.back(), t.layers - 1));
}

constexpr std::array kOwnKeys = {
    "name",       "family",          "vocabulary",        "hidden",      "layers",
    "heads",      "kv_heads",        "head_dim",          "ffn",         "max_positions",
    "rope_theta", "tied_embeddings", "qkv_bias",          "output_bias", "ffn_bias",
    "qk_norm",    "norm_epsilon",    "sliding_window",    "latent",      "full_attention",
    "experts",    "source",          "extra_predictions", "lora",        "extra_prediction_weight"};

void read_latent(const Yaml& node, Transformer& t) {
  const Fields fields(node, "latent attention", {"q_rank", "kv_rank", "rope_dim", "value_dim"});
  const Config config(node);
  t.latent.q_rank = config.integer("q_rank", {0, kWidth.most}, 0);
  t.latent.kv_rank = to_integer(fields.need("kv_rank"), kWidth);
  t.latent.rope_dim = to_integer(fields.need("rope_dim"), kWidth);
  t.latent.value_dim = to_integer(fields.need("value_dim"), kWidth);
}

void read_experts(const Yaml& node, Experts& e) {
  const Fields fields(node, "experts",
                      {"count", "per_token", "ffn", "shared_ffn", "shared_gate", "dense_layers", "scores",
                       "normalise", "scale", "balancing_bias", "groups", "groups_per_token"});
  const Config config(node);
  e.count = to_integer(fields.need("count"), kWidth);
  e.per_token = to_integer(fields.need("per_token"), kWidth);
  e.ffn = to_integer(fields.need("ffn"), kRows);
  e.shared_ffn = config.integer("shared_ffn", {0, kRows.most}, 0);
  e.shared_gate = config.truth("shared_gate", false);
  e.dense_layers = config.layers("dense_layers");
  const Yaml scores = config.find("scores");
  if (scores && to_choice(scores, {"softmax", "sigmoid"}) == "sigmoid") e.scores = RouterScores::sigmoid;
  e.normalise = config.truth("normalise", false);
  e.scale = config.number("scale", 1.0);
  e.balancing_bias = config.truth("balancing_bias", false);
  e.groups = config.integer("groups", kWidth, 1);
  e.groups_per_token = config.integer("groups_per_token", kWidth, 1);
}

std::vector<std::string> linear_layers(const Transformer& t) {
  std::vector<std::string> names = {"proj"};
  if (!t.latent.used()) names.insert(names.begin(), "qkv");
  bool dense = false;
  for (std::int64_t layer = 0; layer < t.layers; ++layer) dense = dense || !t.has_experts(layer);
  if (dense) names.insert(names.end(), {t.gated() ? "gate_up" : "fc1", "fc2"});
  return names;
}

void read_variant(const Config& config, Transformer& t) {
  t.qkv_bias = config.truth("qkv_bias", false);
  t.output_bias = config.truth("output_bias", false);
  t.ffn_bias = config.truth("ffn_bias", false);
  t.qk_norm = config.truth("qk_norm", false);
  t.sliding_window = config.integer("sliding_window", {0, kRows.most}, 0);
  t.full_attention = config.layers("full_attention");
  t.extra_predictions = config.integer("extra_predictions", {0, 16}, 0);
  t.extra_prediction_weight = config.number("extra_prediction_weight", 0);
  if (const Yaml latent = config.find("latent")) read_latent(latent, t);
  if (const Yaml experts = config.find("experts")) read_experts(experts, t.experts);
  if (const Yaml lora = config.find("lora")) read_lora(lora, t);
}

Transformer read_own(const Yaml& node, const std::string& default_name) {
  const Fields fields(node, "a model", {kOwnKeys.begin(), kOwnKeys.end()});
  const Config config(node);
  Transformer t;
  t.name = config.text("name", default_name);
  const bool gpt2 = to_choice(fields.need("family"), {"gpt2", "llama"}) == "gpt2";
  t.family = gpt2 ? Family::gpt2 : Family::llama;
  t.vocabulary = to_integer(fields.need("vocabulary"), kRows);
  t.hidden = to_integer(fields.need("hidden"), kWidth);
  t.layers = to_integer(fields.need("layers"), kLayers);
  t.heads = to_integer(fields.need("heads"), kWidth);
  t.kv_heads = config.integer("kv_heads", kWidth, t.heads);
  t.head_dim = config.integer("head_dim", kWidth, default_head_dim(t));
  t.ffn = gpt2 ? config.integer("ffn", kRows, 4 * t.hidden) : to_integer(fields.need("ffn"), kRows);
  t.max_positions = to_integer(fields.need("max_positions"), kRows);
  t.tied_embeddings = config.truth("tied_embeddings", gpt2);
  t.norm_epsilon = config.number("norm_epsilon", 1e-5);
  t.rope_theta = config.number("rope_theta", 10000.0);
  read_variant(config, t);
  t.source = config.text("source", "");
  refuse_impossible(t, node->where);
  return t;
}

// A key only where its value is not the default.
std::string when(bool differs, const std::string& text) { return differs ? text : ""; }

std::string print(const LatentAttention& latent) {
  return fmt::format("latent: {{q_rank: {}, kv_rank: {}, rope_dim: {}, value_dim: {}}}\n", latent.q_rank,
                     latent.kv_rank, latent.rope_dim, latent.value_dim);
}

std::string print(const Lora& lora) {
  return fmt::format("lora: {{rank: {}, alpha: {}, on: [{}]}}\n", lora.rank, format_exact(lora.alpha),
                     fmt::join(lora.on, ", "));
}

std::string print(const Experts& e) {
  std::string text = fmt::format("experts: {{count: {}, per_token: {}, ffn: {}", e.count, e.per_token, e.ffn);
  text += when(e.shared_ffn > 0, fmt::format(", shared_ffn: {}", e.shared_ffn));
  text += when(e.shared_gate, ", shared_gate: true");
  text += when(!e.dense_layers.empty(), fmt::format(", dense_layers: [{}]", fmt::join(e.dense_layers, ", ")));
  text += when(e.scores == RouterScores::sigmoid, ", scores: sigmoid");
  text += when(e.normalise, ", normalise: true");
  text += when(e.scale != 1.0, fmt::format(", scale: {}", format_exact(e.scale)));
  text += when(e.balancing_bias, ", balancing_bias: true");
  text += when(e.groups != 1, fmt::format(", groups: {}", e.groups));
  text += when(e.groups_per_token != 1, fmt::format(", groups_per_token: {}", e.groups_per_token));
  return text + "}\n";
}

std::string print_variant(const Transformer& t) {
  return when(t.qkv_bias, "qkv_bias: true\n") + when(t.output_bias, "output_bias: true\n") +
         when(t.ffn_bias, "ffn_bias: true\n") + when(t.qk_norm, "qk_norm: true\n") +
         when(t.sliding_window > 0, fmt::format("sliding_window: {}\n", t.sliding_window)) +
         when(!t.full_attention.empty(),
              fmt::format("full_attention: [{}]\n", fmt::join(t.full_attention, ", "))) +
         when(t.latent.used(), print(t.latent)) + when(t.experts.count > 0, print(t.experts)) +
         when(t.lora.used(), print(t.lora)) +
         when(t.extra_predictions > 0, fmt::format("extra_predictions: {}\n", t.extra_predictions)) +
         when(t.extra_prediction_weight > 0,
              fmt::format("extra_prediction_weight: {}\n", format_exact(t.extra_prediction_weight)));
}

}  // namespace

void read_lora(const Yaml& node, Transformer& t) {
  const Fields fields(node, "`lora`", {"rank", "alpha", "on"});
  t.lora.rank = to_integer(fields.need("rank"), kWidth);
  const Yaml alpha = fields.find("alpha");
  t.lora.alpha = alpha ? to_number(alpha, Sign::positive) : static_cast<double>(t.lora.rank);
  t.lora.on = linear_layers(t);
  const Yaml on = fields.find("on");
  if (!on) return;
  const std::vector<std::string> known = t.lora.on;
  t.lora.on.clear();
  for (const Yaml& item : to_sequence(on)) {
    const std::string name = to_choice(item, known);
    if (std::find(t.lora.on.begin(), t.lora.on.end(), name) != t.lora.on.end())
      throw Refusal(Exit::usage, "listed-twice", item->where, fmt::format("`{}` is listed twice", name),
                    "keep one");
    t.lora.on.push_back(name);
  }
}

void refuse_impossible(const Transformer& t, const Location& where) {
  refuse_impossible_heads(t, where);
  refuse_impossible_experts(t, where);
  refuse_impossible_layers(t, t.experts.dense_layers, "dense_layers", where);
  refuse_impossible_layers(t, t.full_attention, "full_attention", where);
  const bool plain = !t.qkv_bias && !t.output_bias && !t.ffn_bias && !t.qk_norm && t.sliding_window == 0 &&
                     !t.latent.used() && t.experts.count == 0 && t.extra_predictions == 0;
  if (t.family == Family::gpt2 && !plain)
    refuse_model(where, "gpt2 has its own biases, and none of the llama family's variants", "family: llama");
}

Transformer read_transformer(const Yaml& node, const std::string& default_name) {
  if (node->is_map() && node->find("model_type")) return read_hugging_face(node, default_name);
  return read_own(node, default_name);
}

std::string print(const Transformer& t) {
  return fmt::format(
      "name: {}\nfamily: {}\nvocabulary: {}\nhidden: {}\nlayers: {}\nheads: {}\nkv_heads: {}\n"
      "head_dim: {}\nffn: {}\nmax_positions: {}\ntied_embeddings: {}\nnorm_epsilon: {}\n"
      "rope_theta: {}\n{}source: {}\n",
      quote(t.name), t.family == Family::gpt2 ? "gpt2" : "llama", t.vocabulary, t.hidden, t.layers, t.heads,
      t.kv_heads, t.head_dim, t.ffn, t.max_positions, t.tied_embeddings, format_exact(t.norm_epsilon),
      format_exact(t.rope_theta), print_variant(t), quote(t.source));
}

Transformer parse_transformer(const std::string& text) {
  return read_transformer(parse_yaml(text, "model"), "");
}

}  // namespace motley
