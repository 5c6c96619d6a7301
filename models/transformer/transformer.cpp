// The parameters of a Transformer, how tensor parallelism cuts them, and the FLOPs. Nothing here knows a strategy or
// a chip. Read next: models/strategy/strategy.cpp.
#include "models/transformer/transformer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/base/refusal.hpp"
#include "models/base/size.hpp"

namespace motley {
namespace {

// Standard deviation of fresh weights: Radford et al. 2019 (GPT-2), section 2.3 and its code.
constexpr double kInitStd = 0.02;

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The matrices that are stacked in a fused linear layer, in their order; empty: it is not fused.
std::vector<std::string_view> fused_in(std::string_view linear) {
  if (linear == "qkv") return {"q", "k", "v"};
  if (linear == "gate_up") return {"gate", "up"};
  return {};
}

class ParameterList {
 public:
  explicit ParameterList(const Transformer& transformer) : t_(transformer) {}

  std::vector<Parameter> take() && {
    for (Parameter& parameter : list_)
      if (t_.lora.used() && !parameter.adapter) parameter.trained = false;
    return std::move(list_);
  }

  void norm(const std::string& name, int layer) {
    list_.push_back({.name = name + ".weight",
                     .shape = {t_.hidden},
                     .layer = layer,
                     .cut = Cut::replicated,
                     .parts = {},
                     .init_value = 1.0,
                     .by_rows = true});
    if (t_.biases()) bias(name, layer, t_.hidden, Cut::replicated, {});
    last().by_rows = true;
  }

  // Adds a weight of (rows, columns), without bias.
  void matrix(const std::string& name, int layer, std::int64_t rows, std::int64_t columns, Cut cut,
              double init_std, std::vector<std::int64_t> parts = {}) {
    list_.push_back({.name = name + ".weight",
                     .shape = {rows, columns},
                     .layer = layer,
                     .cut = cut,
                     .parts = std::move(parts),
                     .decays = true,
                     .init_std = init_std});
  }

  // Adds the weight of an RMSNorm over `width` elements.
  void scale(const std::string& name, int layer, std::int64_t width) {
    list_.push_back(
        {.name = name + ".weight", .shape = {width}, .layer = layer, .parts = {}, .init_value = 1.0});
  }
  void untrained_bias(const std::string& name, int layer, std::int64_t rows) {
    bias(name, layer, rows, Cut::replicated, {});
    last().trained = false;
  }
  void bias(const std::string& name, int layer, std::int64_t rows, Cut cut, std::vector<std::int64_t> parts) {
    list_.push_back(
        {.name = name + ".bias", .shape = {rows}, .layer = layer, .cut = cut, .parts = std::move(parts)});
  }
  Parameter& last() { return list_.back(); }

  // Adds a linear layer. Its bias is cut as its output rows are.
  void linear(const std::string& name, int layer, std::int64_t rows, std::int64_t columns, Cut cut,
              double init_std, bool biased, const std::vector<std::int64_t>& parts = {}) {
    matrix(name, layer, rows, columns, cut, init_std, parts);
    if (t_.biases() || biased) {
      bias(name, layer, rows, cut == Cut::columns ? Cut::replicated : cut, parts);
      last().by_rows = cut == Cut::columns;  // the bias is added to the sum over ranks
    }
    if (t_.lora.beside(name.substr(name.rfind('.') + 1))) adapter(name, layer, rows, columns, cut, parts);
  }

 private:
  // Adds the matrices of an adapter. A is cut as the layer's inputs are, and B as its outputs are. If some of the
  // matrices that a layer stacks have adapters of their own, their A stand one below the other, and so do their B.
  void adapter(const std::string& name, int layer, std::int64_t rows, std::int64_t columns, Cut cut,
               const std::vector<std::int64_t>& parts) {
    const bool by_columns = cut == Cut::columns;
    std::int64_t count = 1, adapted_rows = rows;
    std::vector<std::int64_t> adapted_parts = parts;
    const std::string linear = name.substr(name.rfind('.') + 1);
    if (!contains(t_.lora.on, linear)) {  // adapters of their own for some of the stacked matrices
      const auto fused = fused_in(linear);
      count = adapted_rows = 0;
      adapted_parts.clear();
      for (std::size_t i = 0; i < fused.size(); ++i) {
        if (!contains(t_.lora.on, fused[i])) continue;
        ++count;
        adapted_rows += parts.at(i);
        adapted_parts.push_back(parts.at(i));
      }
    }
    matrix(name + ".a", layer, count * t_.lora.rank, columns, by_columns ? Cut::columns : Cut::replicated,
           1 / std::sqrt(3.0 * static_cast<double>(columns)));
    last().adapter = true;
    matrix(name + ".b", layer, adapted_rows, t_.lora.rank, by_columns ? Cut::replicated : cut, 0,
           std::move(adapted_parts));
    last().adapter = true;
  }
  const Transformer& t_;
  std::vector<Parameter> list_;
};

struct LayerNames {
  std::string prefix;
  int layer;
};

void add_latent_attention(ParameterList& list, const Transformer& t, const LayerNames& at) {
  const LatentAttention& latent = t.latent;
  if (latent.q_rank > 0) {
    list.matrix(at.prefix + "q_down", at.layer, latent.q_rank, t.hidden, Cut::replicated, kInitStd);
    list.scale(at.prefix + "q_down_norm", at.layer, latent.q_rank);
    list.matrix(at.prefix + "q_up", at.layer, t.heads * t.head_dim, latent.q_rank, Cut::rows, kInitStd);
  } else {
    list.matrix(at.prefix + "q", at.layer, t.heads * t.head_dim, t.hidden, Cut::rows, kInitStd);
  }
  list.matrix(at.prefix + "kv_down", at.layer, latent.kv_rank + latent.rope_dim, t.hidden, Cut::replicated,
              kInitStd);
  list.scale(at.prefix + "kv_down_norm", at.layer, latent.kv_rank);
  list.matrix(at.prefix + "kv_up", at.layer, t.heads * (t.head_dim - latent.rope_dim + latent.value_dim),
              latent.kv_rank, Cut::rows, kInitStd);
}

void add_head_norms(ParameterList& list, const Transformer& t, const LayerNames& at) {
  if (t.qk_norm_form == QkNormForm::unweighted) return;
  const bool whole = t.qk_norm_form == QkNormForm::all_heads;
  for (const auto& [name, heads] : {std::pair{"q_norm", t.heads}, std::pair{"k_norm", t.kv_heads}}) {
    list.scale(at.prefix + name, at.layer, (whole ? heads : 1) * t.head_dim);
    if (whole) list.last().cut = Cut::rows;
  }
}

void add_attention(ParameterList& list, const Transformer& t, const LayerNames& at, double residual_std) {
  const std::int64_t q = t.heads * t.head_dim, kv = t.kv_heads * t.head_dim;
  if (t.latent.used())
    add_latent_attention(list, t, at);
  else
    list.linear(at.prefix + "qkv", at.layer, q + 2 * kv, t.hidden, Cut::fused_rows, kInitStd, t.qkv_bias,
                {q, kv, kv});
  if (t.qk_norm) add_head_norms(list, t, at);
  if (t.attention_sinks) {
    list.scale(at.prefix + "sinks", at.layer, t.heads);
    list.last().cut = Cut::rows;
    list.last().init_value = 0;
  }
  list.linear(at.prefix + "proj", at.layer, t.hidden, t.heads * t.value_dim(), Cut::columns, residual_std,
              t.output_bias);
}

void add_dense(ParameterList& list, const Transformer& t, const LayerNames& at, double residual_std) {
  if (t.gated())
    list.linear(at.prefix + "gate_up", at.layer, 2 * t.ffn, t.hidden, Cut::fused_rows, kInitStd, t.ffn_bias,
                {t.ffn, t.ffn});
  else
    list.linear(at.prefix + "fc1", at.layer, t.ffn, t.hidden, Cut::rows, kInitStd, t.ffn_bias);
  list.linear(at.prefix + "fc2", at.layer, t.hidden, t.ffn, Cut::columns, residual_std, t.ffn_bias);
}

void add_experts(ParameterList& list, const Transformer& t, const LayerNames& at, double residual_std) {
  const Experts& e = t.experts;
  list.matrix(at.prefix + "router", at.layer, e.count, t.hidden, Cut::replicated, kInitStd);
  if (e.balancing_bias) list.untrained_bias(at.prefix + "router", at.layer, e.count);
  if (e.router_bias) list.bias(at.prefix + "router.logit", at.layer, e.count, Cut::replicated, {});
  const auto add = [&](const char* name, const std::vector<std::int64_t>& parts, std::int64_t rows,
                       std::int64_t columns, Cut cut, double init_std) {
    list.matrix(at.prefix + name, at.layer, e.count * rows, columns, cut, init_std, parts);
    list.last().experts = e.count;
    if (!e.bias) return;
    list.bias(at.prefix + name, at.layer, e.count * rows, cut == Cut::columns ? Cut::replicated : cut, parts);
    list.last().experts = e.count;
  };
  add("experts.gate_up", {e.ffn, e.ffn}, 2 * e.ffn, t.hidden, Cut::fused_rows, kInitStd);
  add("experts.down", {}, t.hidden, e.ffn, Cut::columns, residual_std);
  if (e.shared_ffn == 0) return;
  list.matrix(at.prefix + "shared.gate_up", at.layer, 2 * e.shared_ffn, t.hidden, Cut::fused_rows, kInitStd,
              {e.shared_ffn, e.shared_ffn});
  list.matrix(at.prefix + "shared.down", at.layer, t.hidden, e.shared_ffn, Cut::columns, residual_std);
  if (e.shared_gate) list.matrix(at.prefix + "shared.gate", at.layer, 1, t.hidden, Cut::replicated, kInitStd);
}

void add_layer(ParameterList& list, const Transformer& t, int layer) {
  const LayerNames at{layer_name(t, layer) + ".", layer};
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(t.layers));
  if (t.norms_inputs()) list.norm(at.prefix + "norm1", layer);
  add_attention(list, t, at, residual_std);
  if (t.norms_outputs()) list.norm(at.prefix + "post_norm1", layer);
  if (t.norms_inputs()) list.norm(at.prefix + "norm2", layer);
  if (t.has_experts(layer))
    add_experts(list, t, at, residual_std);
  else
    add_dense(list, t, at, residual_std);
  if (t.norms_outputs()) list.norm(at.prefix + "post_norm2", layer);
}

// Assumes: every tensor-parallel rank holds the whole projection that joins hidden vector and token of an extra
// layer.
void add_extra(ParameterList& list, const Transformer& t, int layer) {
  const std::string prefix = layer_name(t, layer) + ".";
  list.norm(prefix + "hidden_norm", layer);
  list.norm(prefix + "token_norm", layer);
  for (const char* half : {"from_hidden", "from_token"}) {
    list.matrix(prefix + half, layer, t.hidden, t.hidden, Cut::replicated, kInitStd);
    list.last().by_rows = true;
  }
  add_layer(list, t, layer);
  list.norm(prefix + "norm", layer);
}

std::int64_t divided(std::int64_t size, std::int64_t tp) {
  MOTLEY_CHECK(size % tp == 0);
  return size / tp;
}

}  // namespace

std::int64_t Parameter::count() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count = size_product({count, extent});
  return count;
}

std::vector<Parameter> parameters(const Transformer& t) {
  ParameterList list(t);
  const int head = static_cast<int>(t.layers);
  list.matrix("embedding.token", -1, t.vocabulary, t.hidden, Cut::vocabulary, kInitStd);
  if (t.learned_positions())
    list.matrix("embedding.position", -1, t.max_positions, t.hidden, Cut::replicated, kInitStd);
  for (int layer = 0; layer < head; ++layer) add_layer(list, t, layer);
  list.norm("head.norm", head);
  if (!t.tied_embeddings) list.matrix("head", head, t.vocabulary, t.hidden, Cut::vocabulary, kInitStd);
  for (int k = 1; k <= t.trained_extra(); ++k) add_extra(list, t, head + k);
  return std::move(list).take();
}

std::string layer_name(const Transformer& t, std::int64_t layer) {
  if (layer < 0) return "embedding";
  if (layer == t.layers) return "head";
  return layer > t.layers ? fmt::format("extra.{}", layer - t.layers - 1) : fmt::format("layers.{}", layer);
}

std::vector<std::int64_t> shard_shape(const Parameter& parameter, std::int64_t tp) {
  std::vector<std::int64_t> shape = parameter.shape;
  switch (parameter.cut) {
    case Cut::replicated:
      break;
    case Cut::rows:
      shape[0] = divided(shape[0], tp);
      break;
    case Cut::columns:
      shape[1] = divided(shape[1], tp);
      break;
    case Cut::vocabulary:
      shape[0] = (shape[0] + tp - 1) / tp;
      break;
    case Cut::fused_rows:
      shape[0] = 0;
      for (std::int64_t rows : parameter.parts) shape[0] += divided(rows, tp);
      shape[0] *= std::max<std::int64_t>(parameter.experts, 1);
      break;
  }
  return shape;
}

Parameter part_of_experts(const Parameter& parameter, std::int64_t parts) {
  Parameter part = parameter;
  part.experts = divided(parameter.experts, parts);
  part.shape[0] = divided(parameter.shape[0], parts);
  return part;
}

bool Lora::beside(const std::string& linear) const {
  const auto fused = fused_in(linear);
  return used() &&
         (contains(on, linear) ||
          std::any_of(fused.begin(), fused.end(), [&](std::string_view part) { return contains(on, part); }));
}

std::int64_t parameter_count(const Transformer& transformer) {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters(transformer))
    if (!parameter.adapter && parameter.layer <= transformer.layers)
      count = size_sum(count, parameter.count());
  return count;
}

std::int64_t trained_parameter_count(const Transformer& transformer) {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters(transformer))
    if (parameter.trained) count += parameter.count();
  return count;
}

std::int64_t active_parameter_count(const Transformer& t) {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters(t))
    if (!parameter.adapter && parameter.layer <= t.layers)
      count += parameter.experts == 0 ? parameter.count()
                                      : parameter.count() / parameter.experts * t.experts.per_token;
  return count;
}

std::int64_t extra_prediction_count(const Transformer& t) {
  Transformer trained = t;
  trained.extra_prediction_weight = 1;
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters(trained))
    if (parameter.layer > t.layers && !parameter.adapter) count += parameter.count();
  return count;
}

bool Transformer::has_experts(std::int64_t layer) const {
  return experts.count > 0 &&
         !std::binary_search(experts.dense_layers.begin(), experts.dense_layers.end(), layer);
}

bool Transformer::has_equal_layers() const {
  for (std::int64_t layer = 1; layer < layers; ++layer)
    if (sees_all(layer) != sees_all(0) || has_experts(layer) != has_experts(0)) return false;
  return true;
}

std::int64_t Transformer::window(std::int64_t layer) const {
  return std::binary_search(full_attention.begin(), full_attention.end(), layer) ? 0 : sliding_window;
}

std::int64_t Transformer::chunk(std::int64_t layer) const {
  return std::binary_search(full_attention.begin(), full_attention.end(), layer) ? 0 : attention_chunk;
}

bool Transformer::rotates(std::int64_t layer) const {
  return family == Family::llama && (full_attention_rope || !sees_all(layer));
}

double Transformer::rope_theta_of(std::int64_t layer) const {
  return windowed_rope_theta > 0 && !sees_all(layer) ? windowed_rope_theta : rope_theta;
}

bool Transformer::norms_heads(std::int64_t layer) const {
  return qk_norm && (qk_norm_form != QkNormForm::unweighted || rotates(layer));
}

double attention_pairs(std::int64_t T, std::int64_t window) {
  const double tokens = static_cast<double>(T), seen = static_cast<double>(window);
  return window <= 0 || window >= T ? tokens * tokens : seen * (2 * tokens - seen);
}

std::string flop_formula(const Transformer& t) {
  constexpr const char* kAttention = "12*L*T*H*head_dim*tokens (attention not halved)";
  constexpr const char* kSource = "arXiv:2104.04473 eq. 3 without recompute";
  if (!t.lora.used()) return fmt::format("{}: 6*matmul_parameters*tokens + {}", kSource, kAttention);
  return fmt::format(
      "{}, no gradient of frozen weights: (4*frozen + 6*trained matmul_parameters)*tokens + {}", kSource,
      kAttention);
}

double attention_pairs(const std::vector<std::int64_t>& documents, std::int64_t T, Sight sight) {
  const auto of_document = [&](std::int64_t tokens) {
    if (sight.chunk <= 0) return attention_pairs(tokens, sight.window);
    return static_cast<double>(tokens / sight.chunk) * attention_pairs(sight.chunk, 0) +
           attention_pairs(tokens % sight.chunk, 0);
  };
  if (documents.empty()) return of_document(T);
  double pairs = 0;
  for (const std::int64_t tokens : documents) pairs += of_document(tokens);
  return pairs;
}

double model_flops_per_sequence(const Transformer& t, std::int64_t T) {
  // FLOPs are doubles: those of 128 k tokens of a large model are above 2^63.
  const auto times = [](bool trained) { return trained ? 6.0 : 4.0; };
  double flops = times(!t.lora.used()) * static_cast<double>(t.vocabulary) * static_cast<double>(t.hidden) *
                 static_cast<double>(1 + t.trained_extra());  // FLOPs of the head
  double attention = 0;
  for (const Parameter& parameter : parameters(t)) {
    if (parameter.layer < 0 || parameter.layer == t.layers || parameter.shape.size() < 2) continue;
    const double share = parameter.experts == 0 ? 1.0
                                                : static_cast<double>(t.experts.per_token) /
                                                      static_cast<double>(parameter.experts);
    flops += times(parameter.trained) * static_cast<double>(parameter.count()) * share;
  }
  for (std::int64_t layer = 0; layer <= t.layers + t.trained_extra(); ++layer)
    if (layer != t.layers)
      attention += static_cast<double>(6 * t.heads * (t.head_dim + t.value_dim())) *
                   attention_pairs({}, T, t.sight(layer));
  return flops * static_cast<double>(T) + attention;
}

std::string simulated_only(const Transformer& t) {
  const Experts& e = t.experts;
  if (t.qk_norm && t.qk_norm_form != QkNormForm::head)
    return fmt::format("qk_norm_form: {}", name_of(t.qk_norm_form));
  const bool gelu_of_dense = t.activation == GateActivation::gelu && e.count == 0;
  if (t.activation != GateActivation::silu && !gelu_of_dense)
    return fmt::format("activation: {}", name_of(t.activation));
  if (t.attention_sinks) return "attention_sinks: true";
  if (e.bias) return "experts.bias: true";
  if (e.router_bias) return "experts.router_bias: true";
  if (e.weighted_inputs) return "experts.weighted_inputs: true";
  return "";
}

}  // namespace motley
