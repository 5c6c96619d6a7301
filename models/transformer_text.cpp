// A Transformer from a Hugging Face config.json as it is, or from our own keys, and back. Weights
// and tokenizers are not read.
//
// Assumes: `rope_scaling` (Llama 3.1 and later) changes only the angles of the rotation, so it is
// ignored: no parameter, FLOP or byte depends on it.
#include <fmt/format.h>

#include <array>

#include "models/describe_text.hpp"
#include "models/refusal.hpp"
#include "models/scenario.hpp"

namespace motley {
namespace {

// Beyond every published model by 10x and more; products stay within int64.
constexpr IntegerRange kWidth{1, 1 << 20}, kRows{1, 1 << 22}, kLayers{1, 10'000};

[[noreturn]] void refuse_model(const Location& where, const std::string& message,
                               const std::string& hint = {}) {
  throw Refusal(Exit::usage, "impossible-model", where, message, hint);
}

// Shapes that no kernel could hold.
void refuse_impossible(const Transformer& t, const Location& where) {
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
}

std::int64_t default_head_dim(const Transformer& t) {
  return t.hidden % t.heads == 0 ? t.hidden / t.heads : 0;
}

// A view of a config.json: keys that are not asked for are not looked at.
class Config {
 public:
  explicit Config(Yaml node) : node_(std::move(node)) {}

  Yaml find(std::string_view key) const {
    const YamlEntry* entry = node_->find(key);
    return entry && entry->value->kind != YamlNode::Kind::null ? entry->value : nullptr;
  }
  std::int64_t need(std::string_view key, IntegerRange range) const {
    const Yaml found = find(key);
    if (!found)
      throw Refusal(Exit::usage, "missing-key", node_->where,
                    fmt::format("this config.json needs a value for `{}`", key));
    return to_integer(found, range);
  }
  std::int64_t integer(std::string_view key, IntegerRange range, std::int64_t otherwise) const {
    const Yaml found = find(key);
    return found ? to_integer(found, range) : otherwise;
  }
  double number(std::string_view key, double otherwise) const {
    const Yaml found = find(key);
    return found ? to_number(found, Sign::positive) : otherwise;
  }
  bool truth(std::string_view key, bool otherwise) const {
    const Yaml found = find(key);
    return found ? to_bool(found) : otherwise;
  }
  std::string text(std::string_view key, const std::string& otherwise) const {
    const Yaml found = find(key);
    return found ? to_text(found) : otherwise;
  }
  // Refuses a value that would make it another function than the family's.
  void require(std::string_view key, const std::vector<std::string>& supported) const {
    const Yaml found = find(key);
    if (!found) return;
    for (const std::string& value : supported)
      if (to_text(found) == value) return;
    throw Refusal(Exit::usage, "unsupported-model", found->where,
                  fmt::format("{} `{}` is not supported", key, to_text(found)),
                  fmt::format("supported: {}", fmt::join(supported, ", ")));
  }

 private:
  Yaml node_;
};

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
  config.require("hidden_act", {"silu"});
  config.require("attention_bias", {"false"});
  config.require("mlp_bias", {"false"});
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
}

// Python's json writes NaN and Infinity, which JSON has not: whoever wrote them, wrote a mistake.
void refuse_not_finite(const Yaml& node) {
  double value = 0;
  if (node->is_scalar() && !node->quoted && read_number(node->text, value) == NumberFault::not_finite)
    throw Refusal(Exit::usage, "not-finite", node->where, describe(NumberFault::not_finite, node->text));
  for (const Yaml& item : node->items) refuse_not_finite(item);
  for (const YamlEntry& entry : node->entries) refuse_not_finite(entry.value);
}

constexpr std::array kOwnKeys = {
    "name",     "family", "vocabulary",    "hidden",          "layers",       "heads",      "kv_heads",
    "head_dim", "ffn",    "max_positions", "tied_embeddings", "norm_epsilon", "rope_theta", "source"};

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
  t.source = config.text("source", "");
  refuse_impossible(t, node->where);
  return t;
}

}  // namespace

Transformer read_hugging_face(const Yaml& node, const std::string& default_name) {
  if (!node->is_map())
    throw Refusal(Exit::usage, "wrong-type", node->where,
                  fmt::format("expected a config.json (a map), found {}", describe(node)));
  refuse_not_finite(node);
  const Config config(node);
  const Yaml type = config.find("model_type");
  if (!type)
    throw Refusal(Exit::usage, "missing-key", node->where, "this config.json needs a value for `model_type`");
  config.require("model_type", {"gpt2", "llama"});
  Transformer t;
  t.name = default_name;
  t.source = config.text("_source", "its config.json");
  t.family = to_text(type) == "gpt2" ? Family::gpt2 : Family::llama;
  t.vocabulary = config.need("vocab_size", kRows);
  if (t.family == Family::gpt2)
    read_gpt2(config, t);
  else
    read_llama(config, t);
  refuse_impossible(t, node->where);
  return t;
}

Transformer read_transformer(const Yaml& node, const std::string& default_name) {
  if (node->is_map() && node->find("model_type")) return read_hugging_face(node, default_name);
  return read_own(node, default_name);
}

std::string print(const Transformer& t) {
  return fmt::format(
      "name: {}\nfamily: {}\nvocabulary: {}\nhidden: {}\nlayers: {}\nheads: {}\nkv_heads: {}\n"
      "head_dim: {}\nffn: {}\nmax_positions: {}\ntied_embeddings: {}\nnorm_epsilon: {}\n"
      "rope_theta: {}\nsource: {}\n",
      quote(t.name), t.family == Family::gpt2 ? "gpt2" : "llama", t.vocabulary, t.hidden, t.layers, t.heads,
      t.kv_heads, t.head_dim, t.ffn, t.max_positions, t.tied_embeddings, format_exact(t.norm_epsilon),
      format_exact(t.rope_theta), quote(t.source));
}

Transformer parse_transformer(const std::string& text) {
  return read_transformer(parse_yaml(text, "model"), "");
}

}  // namespace motley
