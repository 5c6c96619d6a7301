// The embedding of a stage. The table is cut by vocabulary over tensor-parallel ranks: each looks up its part of the
// vocabulary, and the sum over the ranks is the embedding.
// Assumes: a look-up reads and writes one row for each token, not the table.
#include "models/compile/stage_parts.hpp"

namespace motley {
namespace {

Ids tables(const KernelWriter& w) {
  return w.weights({"embedding.token.weight", "embedding.position.weight"});
}

}  // namespace

TensorId embed(KernelWriter& w, const std::string& name) {
  const TensorId x = w.activation(name, {w.N(), w.transformer().hidden});
  Kernel& kernel = w.emit(KernelOp::embed, {}, {x}, tables(w));
  kernel.bytes = 2 * w.tensor(x).bytes;
  kernel.ahead = w.transformer().ahead(w.layer());
  return w.sum_rows(x, name + ".rows");
}

void embed_backward(KernelWriter& w, TensorId dx, const std::string& name) {
  dx = w.all_rows(dx, name + ".rows.gradient", TensorRole::activation_gradient);
  Kernel& kernel = w.emit(KernelOp::embed_backward, {dx}, {}, tables(w));
  kernel.bytes = 3 * w.tensor(dx).bytes;
  kernel.ahead = w.transformer().ahead(w.layer());
}

}  // namespace motley
