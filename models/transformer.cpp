// What a Transformer is made of: its parameters, how tensor parallelism cuts them, and its FLOPs.
// Nothing here knows a strategy or a chip. Read next: models/strategy.cpp.
#include "models/transformer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "models/refusal.hpp"

namespace motley {
namespace {

// Standard deviation of fresh weights: Radford et al. 2019 (GPT-2), section 2.3 and its code.
constexpr double kInitStd = 0.02;

class ParameterList {
 public:
  explicit ParameterList(const Transformer& transformer) : t_(transformer) {}

  std::vector<Parameter> take() && { return std::move(list_); }

  void norm(const std::string& name, int layer) {
    list_.push_back({.name = name + ".weight",
                     .shape = {t_.hidden},
                     .layer = layer,
                     .cut = Cut::replicated,
                     .parts = {},
                     .init_value = 1.0});
    if (t_.biases()) bias(name, layer, t_.hidden, Cut::replicated, {});
  }

  // A weight of (rows, columns), without bias.
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

  // A linear layer: its bias is cut as its output rows are.
  void linear(const std::string& name, int layer, std::int64_t rows, std::int64_t columns, Cut cut,
              double init_std, const std::vector<std::int64_t>& parts = {}) {
    matrix(name, layer, rows, columns, cut, init_std, parts);
    if (t_.biases()) bias(name, layer, rows, cut == Cut::columns ? Cut::replicated : cut, parts);
  }

 private:
  void bias(const std::string& name, int layer, std::int64_t rows, Cut cut, std::vector<std::int64_t> parts) {
    list_.push_back(
        {.name = name + ".bias", .shape = {rows}, .layer = layer, .cut = cut, .parts = std::move(parts)});
  }

  const Transformer& t_;
  std::vector<Parameter> list_;
};

void add_layer(ParameterList& list, const Transformer& t, int layer) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(t.layers));
  const std::int64_t q = t.heads * t.head_dim, kv = t.kv_heads * t.head_dim;
  list.norm(prefix + "norm1", layer);
  list.linear(prefix + "qkv", layer, q + 2 * kv, t.hidden, Cut::fused_rows, kInitStd, {q, kv, kv});
  list.linear(prefix + "proj", layer, t.hidden, q, Cut::columns, residual_std);
  list.norm(prefix + "norm2", layer);
  if (t.gated())
    list.linear(prefix + "gate_up", layer, 2 * t.ffn, t.hidden, Cut::fused_rows, kInitStd, {t.ffn, t.ffn});
  else
    list.linear(prefix + "fc1", layer, t.ffn, t.hidden, Cut::rows, kInitStd);
  list.linear(prefix + "fc2", layer, t.hidden, t.ffn, Cut::columns, residual_std);
}

std::int64_t divided(std::int64_t size, std::int64_t tp) {
  MOTLEY_CHECK(size % tp == 0);
  return size / tp;
}

}  // namespace

std::int64_t Parameter::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
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
  return std::move(list).take();
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
      break;
  }
  return shape;
}

std::int64_t parameter_count(const Transformer& transformer) {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters(transformer)) count += parameter.count();
  return count;
}

double model_flops_per_sequence(const Transformer& t, std::int64_t T) {
  // In doubles: 128 k tokens of a large model pass 2^63.
  const double L = static_cast<double>(t.layers), C = static_cast<double>(t.hidden);
  const double q = static_cast<double>(t.heads * t.head_dim);
  const double kv = static_cast<double>(t.kv_heads * t.head_dim);
  const double ffn_matrices = t.gated() ? 3 : 2;
  const double per_layer = C * (q + 2 * kv) + q * C + ffn_matrices * C * static_cast<double>(t.ffn);
  const double matmul_parameters = L * per_layer + static_cast<double>(t.vocabulary) * C;
  const double tokens = static_cast<double>(T);
  return 6 * matmul_parameters * tokens + 12 * L * tokens * q * tokens;
}

}  // namespace motley
