#include "models/transformer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "models/refusal.hpp"

namespace motley {
namespace {

class ParameterList {
 public:
  explicit ParameterList(const Transformer& transformer) : transformer_(transformer) {}

  std::vector<Parameter> build() {
    const Transformer& t = transformer_;
    matrix(-1, "embedding.token.weight", t.vocabulary, t.hidden, Cut::vocabulary);
    if (t.learned_positions())
      matrix(-1, "embedding.position.weight", t.max_positions, t.hidden, Cut::replicated);
    for (int layer = 0; layer < t.layers; ++layer) add_layer(layer);
    const int head = static_cast<int>(t.layers);
    norm(head, "head.norm");
    if (!t.tied_embeddings) matrix(head, "head.weight", t.vocabulary, t.hidden, Cut::vocabulary);
    return std::move(list_);
  }

 private:
  const Transformer& transformer_;
  std::vector<Parameter> list_;

  Parameter& add(int layer, std::string name, std::vector<std::int64_t> shape, Cut cut) {
    Parameter parameter;
    parameter.name = std::move(name);
    parameter.shape = std::move(shape);
    parameter.layer = layer;
    parameter.cut = cut;
    list_.push_back(parameter);
    return list_.back();
  }
  Parameter& matrix(int layer, const std::string& name, std::int64_t rows, std::int64_t columns, Cut cut) {
    Parameter& parameter = add(layer, name, {rows, columns}, cut);
    parameter.decays = true;
    parameter.init_std = 0.02;  // GPT-2's
    return parameter;
  }
  void norm(int layer, const std::string& name) {
    add(layer, name + ".weight", {transformer_.hidden}, Cut::replicated).init_value = 1.0;
    if (transformer_.biases()) add(layer, name + ".bias", {transformer_.hidden}, Cut::replicated);
  }
  void bias(int layer, const std::string& name, std::int64_t rows, Cut cut,
            std::vector<std::int64_t> parts = {}) {
    if (transformer_.biases()) add(layer, name, {rows}, cut).parts = std::move(parts);
  }
  void add_layer(int layer) {
    const Transformer& t = transformer_;
    const std::string prefix = fmt::format("layers.{}.", layer);
    const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(t.layers));
    const std::int64_t query = t.heads * t.head_dim, key = t.kv_heads * t.head_dim;
    norm(layer, prefix + "norm1");
    const std::vector<std::int64_t> qkv = {query, key, key};
    matrix(layer, prefix + "qkv.weight", query + 2 * key, t.hidden, Cut::fused_rows).parts = qkv;
    bias(layer, prefix + "qkv.bias", query + 2 * key, Cut::fused_rows, qkv);
    matrix(layer, prefix + "proj.weight", t.hidden, query, Cut::columns).init_std = residual_std;
    bias(layer, prefix + "proj.bias", t.hidden, Cut::replicated);
    norm(layer, prefix + "norm2");
    if (t.gated()) {
      matrix(layer, prefix + "gate_up.weight", 2 * t.ffn, t.hidden, Cut::fused_rows).parts = {t.ffn, t.ffn};
    } else {
      matrix(layer, prefix + "fc1.weight", t.ffn, t.hidden, Cut::rows);
      bias(layer, prefix + "fc1.bias", t.ffn, Cut::rows);
    }
    matrix(layer, prefix + "fc2.weight", t.hidden, t.ffn, Cut::columns).init_std = residual_std;
    bias(layer, prefix + "fc2.bias", t.hidden, Cut::replicated);
  }
};

}  // namespace

std::int64_t Parameter::count() const {
  std::int64_t product = 1;
  for (std::int64_t extent : shape) product *= extent;
  return product;
}

std::vector<Parameter> parameters(const Transformer& transformer) {
  return ParameterList(transformer).build();
}

std::vector<std::int64_t> shard_shape(const Parameter& parameter, std::int64_t tp) {
  std::vector<std::int64_t> shape = parameter.shape;
  switch (parameter.cut) {
    case Cut::replicated:
      break;
    case Cut::vocabulary:
      shape[0] = (shape[0] + tp - 1) / tp;
      break;
    case Cut::rows:
    case Cut::fused_rows:
      MOTLEY_CHECK(shape[0] % tp == 0);
      shape[0] /= tp;
      break;
    case Cut::columns:
      MOTLEY_CHECK(shape[1] % tp == 0);
      shape[1] /= tp;
      break;
  }
  return shape;
}

std::int64_t parameter_count(const Transformer& transformer) {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters(transformer)) count += parameter.count();
  return count;
}

double model_flops_per_sequence(const Transformer& transformer, std::int64_t T) {
  double matmul_parameters = static_cast<double>(transformer.vocabulary * transformer.hidden);  // the logits
  for (const Parameter& parameter : parameters(transformer))
    if (parameter.shape.size() == 2 && parameter.layer >= 0 && parameter.layer < transformer.layers)
      matmul_parameters += static_cast<double>(parameter.count());
  const double tokens = static_cast<double>(T);
  const double attention =
      12.0 * static_cast<double>(transformer.layers * transformer.heads * transformer.head_dim) * tokens;
  return tokens * (6.0 * matmul_parameters + attention);
}

}  // namespace motley
