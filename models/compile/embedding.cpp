// The embedding of a stage. The table is cut by vocabulary over tensor-parallel ranks: each looks up its part of the
// vocabulary, and the sum over the ranks is the embedding.
// Assumes: a look-up reads and writes one row for each token, not the table.
#include "models/compile/stage_parts.hpp"

namespace motley {
namespace {

Ids tables(const KernelWriter& w) {
  return w.weights({"embedding.token.weight", "embedding.position.weight"});
}

// The tensor times Transformer::embedding_scale, which is the gradient of that product, too.
TensorId scaled_rows(KernelWriter& w, TensorId x, const std::string& name, TensorRole role) {
  if (w.transformer().embedding_scale == 1) return x;
  const std::vector<std::int64_t> shape = w.tensor(x).shape;
  const TensorId product =
      role == TensorRole::activation ? w.activation(name, shape) : w.gradient(name, shape);
  Kernel& kernel = w.emit(KernelOp::scale, {x}, {product});
  kernel.m = shape.at(0);
  kernel.n = shape.at(1);
  kernel.factor = w.transformer().embedding_scale;
  return product;
}

}  // namespace

TensorId embed(KernelWriter& w, const std::string& name) {
  const TensorId x = w.activation(name, {w.N(), w.transformer().hidden});
  Kernel& kernel = w.emit(KernelOp::embed, {}, {x}, tables(w));
  kernel.bytes = 2 * w.tensor(x).bytes;
  kernel.ahead = w.transformer().ahead(w.layer());
  return scaled_rows(w, w.sum_rows(x, name + ".rows"), name + ".scaled", TensorRole::activation);
}

void embed_backward(KernelWriter& w, TensorId dx, const std::string& name) {
  dx = scaled_rows(w, dx, name + ".scaled", TensorRole::activation_gradient);
  dx = w.all_rows(dx, name + ".rows.gradient", TensorRole::activation_gradient);
  Kernel& kernel = w.emit(KernelOp::embed_backward, {dx}, {}, tables(w));
  kernel.bytes = 3 * w.tensor(dx).bytes;
  kernel.ahead = w.transformer().ahead(w.layer());
}

}  // namespace motley
