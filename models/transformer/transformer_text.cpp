// Reads a Transformer from Motley's own keys, prints it with them, and refuses shapes that no kernel could hold. Read
// next: models/transformer/transformer_config.cpp (a Hugging Face config.json).
#include "models/transformer/transformer_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "models/base/all_refusals.hpp"
#include "models/base/data_files.hpp"
#include "models/transformer/transformer_fields.hpp"

namespace motley {

static_assert(lists_every_member<TransformerFields>() && lists_every_member<LatentAttentionFields>() &&
              lists_every_member<ExpertsFields>() && lists_every_member<LoraFields>());

std::int64_t default_head_dim(const Transformer& t) {
  return t.hidden % t.heads == 0 ? t.hidden / t.heads : 0;
}

namespace {

[[noreturn]] void refuse_model(const Location& where, const std::string& message,
                               const std::string& hint = {}, RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "impossible-model", where, message, hint, site);
}

// Whether some layers have a window or chunks.
bool has_sight(const Transformer& t) { return t.sliding_window > 0 || t.attention_chunk > 0; }

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
  if (t.kv_heads != t.heads || t.qk_norm || t.qkv_bias || has_sight(t) || t.rope_dim > 0 ||
      t.score_width > 0 || t.attention_sinks || t.attention_softcap > 0)
    refuse_model(
        where,
        "latent attention has a key and a value for every head, and neither qkv_bias, qk_norm, "
        "sliding_window, attention_chunk, rope_dim, score_width, attention_sinks nor attention_softcap");
}

// Refuses keys that contradict each other, or that say something of a part which the model lacks.
void refuse_impossible_variants(const Transformer& t, const Location& where) {
  if (t.sliding_window > 0 && t.attention_chunk > 0)
    refuse_model(where, "sliding_window and attention_chunk exclude each other", "keep one of them");
  if (!has_sight(t) && (!t.full_attention_rope || t.windowed_rope_theta > 0))
    refuse_model(where,
                 fmt::format("{} needs layers with a sliding_window or an attention_chunk",
                             t.full_attention_rope ? "windowed_rope_theta" : "full_attention_rope: false"));
  if (t.rope_dim % 2 != 0 || t.rope_dim > t.head_dim)
    refuse_model(where, fmt::format("rotary positions need an even rope_dim of at most head_dim {}, not {}",
                                    t.head_dim, t.rope_dim));
  if (t.qk_norm_form != QkNormForm::head && !t.qk_norm)
    refuse_model(where, fmt::format("qk_norm_form: {} needs qk_norm: true", name_of(t.qk_norm_form)));
  if (t.norms_outputs() && (t.output_bias || t.ffn_bias))
    refuse_model(where,
                 fmt::format("norms: {} leaves no place for output_bias or ffn_bias", name_of(t.norms)));
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
  constexpr double kMostParameters = 0x1p60;  // far below 2^63, so that sums are exact
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

std::vector<std::string> linear_layers(const Transformer& t) {
  std::vector<std::string> names = {"proj"};
  if (!t.latent.used()) names.insert(names.begin(), "qkv");
  bool dense = false;
  for (std::int64_t layer = 0; layer < t.layers; ++layer) dense = dense || !t.has_experts(layer);
  if (dense) names.insert(names.end(), {t.gated() ? "gate_up" : "fc1", "fc2"});
  return names;
}

// The same with the matrices that fused layers stack.
std::vector<std::string> with_stacked(std::vector<std::string> names) {
  for (const std::string& name : std::vector(names)) {
    if (name == "qkv") names.insert(names.end(), {"q", "k", "v"});
    if (name == "gate_up") names.insert(names.end(), {"gate", "up"});
  }
  return names;
}

// Fills in absent keys whose value follows from other keys.
void fill_in(const Fields& fields, Transformer& t) {
  const bool gpt2 = t.family == Family::gpt2;
  if (!fields.find("kv_heads")) t.kv_heads = t.heads;
  if (!fields.find("head_dim")) t.head_dim = default_head_dim(t);
  if (!fields.find("tied_embeddings")) t.tied_embeddings = gpt2;
  if (gpt2 && !fields.find("ffn")) t.ffn = 4 * t.hidden;
  if (!gpt2) fields.need("ffn");
}

Transformer read_own(const Yaml& node, const std::string& default_name) {
  const TransformerFields list;
  const Fields fields(node, "a model", keys_of(list));
  Transformer t;
  t.name = default_name;
  read_fields(list, fields, t);
  fill_in(fields, t);
  refuse_impossible(t, node->where);
  return t;
}

}  // namespace

void LayerNumbers::read(const Yaml& node, std::vector<std::int64_t>& layers) const {
  Several<Integer>{{{0, kLayers.most}}}.read(node, layers);
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
}

std::string LinearLayers::text(const std::vector<std::string>& layers) const {
  return fmt::format("[{}]", fmt::join(layers, ", "));
}

void LinearLayers::read(const Yaml& node, std::vector<std::string>& layers) const {
  layers.clear();
  for (const Yaml& item : to_sequence(node)) {
    const std::string name = to_name(item, std::vector<std::string>(choices.begin(), choices.end()));
    if (std::find(layers.begin(), layers.end(), name) != layers.end())
      throw Refusal(Exit::usage, "listed-twice", item->where, fmt::format("`{}` is listed twice", name),
                    "keep one");
    layers.push_back(name);
  }
}

// A stacked matrix that is listed beside the layer that stacks it would have two adapters.
void refuse_two_adapters(const Yaml& node, const std::vector<std::string>& on) {
  const auto lists = [&](const char* name) { return std::find(on.begin(), on.end(), name) != on.end(); };
  for (const auto& [whole, part] :
       {std::pair{"qkv", "q"}, {"qkv", "k"}, {"qkv", "v"}, {"gate_up", "gate"}, {"gate_up", "up"}})
    if (lists(whole) && lists(part))
      throw Refusal(Exit::usage, "listed-twice", node->where,
                    fmt::format("`{}` is a part of `{}`, which is listed, too", part, whole), "keep one");
}

std::string Adapters::text(const Transformer& t) const {
  return fmt::format("{{{}}}", print_flow(LoraFields{}, t.lora));
}

void read_lora(const Yaml& node, Transformer& t) {
  const std::vector<std::string> all = linear_layers(t);
  const std::vector<std::string> choices = with_stacked(all);
  const LoraFields list{choices};
  const Fields fields(node, "`lora`", keys_of(list));
  t.lora.on = all;
  read_fields(list, fields, t.lora);
  refuse_two_adapters(node, t.lora.on);
  if (!fields.find("alpha")) t.lora.alpha = static_cast<double>(t.lora.rank);
}

void refuse_impossible(const Transformer& t, const Location& where) {
  refuse_impossible_heads(t, where);
  refuse_impossible_variants(t, where);
  refuse_impossible_experts(t, where);
  refuse_impossible_layers(t, t.experts.dense_layers, "dense_layers", where);
  refuse_impossible_layers(t, t.full_attention, "full_attention", where);
  const bool plain = !t.qkv_bias && !t.output_bias && !t.ffn_bias && !t.qk_norm && !has_sight(t) &&
                     t.norms == NormPlaces::before && t.activation == GateActivation::silu &&
                     t.rope_dim == 0 && !t.attention_sinks && t.score_width == 0 &&
                     t.attention_softcap == 0 && t.logit_softcap == 0 && t.embedding_scale == 1 &&
                     !t.latent.used() && t.experts.count == 0 && t.extra_predictions == 0;
  if (t.family == Family::gpt2 && !plain)
    refuse_model(where, "gpt2 has its own biases, and none of the llama family's variants", "family: llama");
  if (const std::int64_t widest = t.heads * std::max(t.head_dim, t.value_dim()); widest > kRows.most)
    refuse_model(where, fmt::format("its heads are {} wide together", widest),
                 fmt::format("at most {}", kRows.most));
  try {
    parameter_count(t);
  } catch (const Refusal& refusal) {
    throw located(refusal, where);
  }
}

Transformer read_transformer(const Yaml& node, const std::string& default_name) {
  if (node->is_map() && node->find("model_type")) return read_hugging_face(node, default_name);
  return read_own(node, default_name);
}

std::string print(const Transformer& t) { return print_lines(TransformerFields{}, t); }

Transformer parse_transformer(const std::string& text) {
  return read_transformer(parse_yaml(text, "model"), "");
}

Transformer find_transformer(const std::string& name, const std::string& folder, const Location& asked_from) {
  const std::string path = find_file(name, folder, "scenarios/models", ".json", asked_from);
  std::string model = stem_of(path);
  // A config.json takes the name of its folder, as on the Hugging Face hub.
  if (model == "config") {
    const std::string holder = folder_of(path);
    if (holder != ".") model = std::filesystem::path(holder).filename().string();
  }
  return read_hugging_face(read_yaml(path, asked_from), model);
}

Transformer load_transformer(const std::string& path_or_name) {
  return telling_all_refusals([&] { return find_transformer(path_or_name, ".", {}); });
}

}  // namespace motley
