// The fields of a Transformer and of its parts, listed once: Motley's own keys for a model, and how each is written.
// Read next: models/transformer/transformer_text.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/base/field_forms.hpp"
#include "models/transformer/transformer.hpp"
#include "models/transformer/transformer_text.hpp"

namespace motley {

// A list of layer numbers, which read() sorts; each number is kept once.
struct LayerNumbers {
  std::string text(const std::vector<std::int64_t>& layers) const { return Several<Integer>{}.text(layers); }
  void read(const Yaml& node, std::vector<std::int64_t>& layers) const;
};

// A list of names of the model's linear layers; read() refuses a name that is listed twice.
struct LinearLayers {
  std::span<const std::string> choices;
  std::string text(const std::vector<std::string>& layers) const;
  void read(const Yaml& node, std::vector<std::string>& layers) const;
};

// The adapters of a frozen model. The fields before `lora` decide which linear layers may have one.
struct Adapters {
  std::string text(const Transformer& transformer) const;
  void read(const Yaml& node, Transformer& transformer) const { read_lora(node, transformer); }
};

inline constexpr IntegerRange kWidthOrNone{0, kWidth.most}, kRowsOrNone{0, kRows.most};

struct LatentAttentionFields {
  using Struct = LatentAttention;
  constexpr void each(auto&& visit) const {
    visit(field("q_rank", Integer{kWidthOrNone}, &LatentAttention::q_rank));
    visit(field("kv_rank", Integer{kWidth}, &LatentAttention::kv_rank).needed());
    visit(field("rope_dim", Integer{kWidth}, &LatentAttention::rope_dim).needed());
    visit(field("value_dim", Integer{kWidth}, &LatentAttention::value_dim).needed());
  }
};

struct ExpertsFields {
  using Struct = Experts;
  constexpr void each(auto&& visit) const {
    visit(field("count", Integer{kExperts}, &Experts::count).needed());
    visit(field("per_token", Integer{kWidth}, &Experts::per_token).needed());
    visit(field("ffn", Integer{kRows}, &Experts::ffn).needed());
    visit(field("shared_ffn", Integer{kRowsOrNone}, &Experts::shared_ffn).unless_standard());
    visit(field("shared_gate", Truth{}, &Experts::shared_gate).unless_standard());
    visit(field("dense_layers", LayerNumbers{}, &Experts::dense_layers).unless_standard());
    visit(field("scores", Word<RouterScores>{}, &Experts::scores).unless_standard());
    visit(field("normalise", Truth{}, &Experts::normalise).unless_standard());
    visit(field("scale", kAboveZero, &Experts::scale).unless_standard());
    visit(field("balancing_bias", Truth{}, &Experts::balancing_bias).unless_standard());
    visit(field("groups", Integer{kWidth}, &Experts::groups).unless_standard());
    visit(field("groups_per_token", Integer{kWidth}, &Experts::groups_per_token).unless_standard());
    visit(field("bias", Truth{}, &Experts::bias).unless_standard());
    visit(field("router_bias", Truth{}, &Experts::router_bias).unless_standard());
    visit(field("weighted_inputs", Truth{}, &Experts::weighted_inputs).unless_standard());
  }
};

struct LoraFields {
  using Struct = Lora;
  std::span<const std::string> linear_layers = {};  // names of the linear layers that the model has
  constexpr void each(auto&& visit) const {
    visit(field("rank", Integer{kWidth}, &Lora::rank).needed());
    visit(field("alpha", kAboveZero, &Lora::alpha));
    visit(field("on", LinearLayers{linear_layers}, &Lora::on));
  }
};

// read_transformer() fills in the keys that are absent and whose value depends on others (kv_heads, head_dim, ffn,
// tied_embeddings).
struct TransformerFields {
  using Struct = Transformer;
  constexpr void each(auto&& visit) const {
    visit(field("name", QuotedText{}, &Transformer::name));
    visit(field("family", Word<Family>{}, &Transformer::family).needed());
    visit(field("vocabulary", Integer{kRows}, &Transformer::vocabulary).needed());
    visit(field("hidden", Integer{kWidth}, &Transformer::hidden).needed());
    visit(field("layers", Integer{kLayers}, &Transformer::layers).needed());
    visit(field("heads", Integer{kWidth}, &Transformer::heads).needed());
    visit(field("kv_heads", Integer{kWidth}, &Transformer::kv_heads));
    visit(field("head_dim", Integer{kWidth}, &Transformer::head_dim));
    visit(field("ffn", Integer{kRows}, &Transformer::ffn));
    visit(field("max_positions", Integer{kRows}, &Transformer::max_positions).needed());
    visit(field("tied_embeddings", Truth{}, &Transformer::tied_embeddings));
    visit(field("norm_epsilon", kAboveZero, &Transformer::norm_epsilon));
    visit(field("rope_theta", kAboveZero, &Transformer::rope_theta));
    visit(field("qkv_bias", Truth{}, &Transformer::qkv_bias).unless_standard());
    visit(field("output_bias", Truth{}, &Transformer::output_bias).unless_standard());
    visit(field("ffn_bias", Truth{}, &Transformer::ffn_bias).unless_standard());
    visit(field("qk_norm", Truth{}, &Transformer::qk_norm).unless_standard());
    visit(field("qk_norm_form", Word<QkNormForm>{}, &Transformer::qk_norm_form).unless_standard());
    visit(field("norms", Word<NormPlaces>{}, &Transformer::norms).unless_standard());
    visit(field("activation", Word<GateActivation>{}, &Transformer::activation).unless_standard());
    visit(field("sliding_window", Integer{kRowsOrNone}, &Transformer::sliding_window).unless_standard());
    visit(field("attention_chunk", Integer{kRowsOrNone}, &Transformer::attention_chunk).unless_standard());
    visit(field("full_attention", LayerNumbers{}, &Transformer::full_attention).unless_standard());
    visit(field("full_attention_rope", Truth{}, &Transformer::full_attention_rope).unless_standard());
    visit(field("windowed_rope_theta", kAboveZero, &Transformer::windowed_rope_theta).unless_standard());
    visit(field("rope_dim", Integer{kWidthOrNone}, &Transformer::rope_dim).unless_standard());
    visit(field("attention_sinks", Truth{}, &Transformer::attention_sinks).unless_standard());
    visit(field("score_width", Integer{kWidthOrNone}, &Transformer::score_width).unless_standard());
    visit(field("attention_softcap", kAboveZero, &Transformer::attention_softcap).unless_standard());
    visit(field("logit_softcap", kAboveZero, &Transformer::logit_softcap).unless_standard());
    visit(field("embedding_scale", kAboveZero, &Transformer::embedding_scale).unless_standard());
    visit(field("latent", Map<LatentAttentionFields>{"latent attention"}, &Transformer::latent)
              .unless_standard());
    visit(field("experts", Map<ExpertsFields>{"experts"}, &Transformer::experts).unless_standard());
    visit(field("lora", Adapters{}, &Transformer::lora).unless_standard());
    visit(field("extra_predictions", Integer{{0, 16}}, &Transformer::extra_predictions).unless_standard());
    visit(field("extra_prediction_weight", kAboveZero, &Transformer::extra_prediction_weight)
              .unless_standard());
    visit(field("source", QuotedText{}, &Transformer::source));
  }
};

}  // namespace motley
