// The dense feed-forward part of a layer: fc1 (or gate and up together) cut by rows, fc2 by columns.
#include "models/compile/stage_parts.hpp"

namespace motley {
namespace {

struct DenseWidths {
  std::int64_t N, C, inner, F;
  explicit DenseWidths(const KernelWriter& w)
      : N(w.N()),
        C(w.transformer().hidden),
        inner((w.transformer().gated() ? 2 : 1) * w.transformer().ffn / w.tp()),
        F(w.transformer().ffn / w.tp()) {}
};

}  // namespace

const char* inner_name(const Transformer& transformer) { return transformer.gated() ? "gate_up" : "fc1"; }

void dense_inner(KernelWriter& w, TensorId y, KeptDense& kept) {
  const DenseWidths s(w);
  const TensorId inner = w.activation("inner", {s.N, s.inner});
  kept.inner = w.linear(y, inner, inner_name(w.transformer()), s.inner, s.C, kept.inner_narrow);
}

void dense_activation(KernelWriter& w, KeptDense& kept) {
  const DenseWidths s(w);
  kept.activated = w.activation("activated", {s.N, s.F});
  w.emit(KernelOp::activation, {kept.inner}, {kept.activated});
}

TensorId dense_forward(KernelWriter& w, TensorId y, KeptDense& kept) {
  const DenseWidths s(w);
  dense_inner(w, y, kept);
  dense_activation(w, kept);
  kept.inner = w.keep_inner(kept.inner);
  return w.linear(kept.activated, w.activation("fc2", {s.N, s.C}), "fc2", s.C, s.F, kept.fc2_narrow);
}

TensorId dense_backward(KernelWriter& w, std::optional<TensorId> y, const KeptDense& kept, TensorId dout) {
  const DenseWidths s(w);
  const TensorId dactivated =
      w.linear_gradients(dout, "activated", kept.activated, "fc2", s.C, s.F, kept.fc2_narrow);
  const TensorId dinner = w.gradient("inner", {s.N, s.inner});
  w.emit(KernelOp::activation_backward, {dactivated, kept.inner}, {dinner});
  const TensorId dy =
      w.linear_gradients(dinner, "norm2", y, inner_name(w.transformer()), s.inner, s.C, kept.inner_narrow);
  return w.sum_rows(dy, "norm2.sum.gradient", TensorRole::activation_gradient);
}

}  // namespace motley
