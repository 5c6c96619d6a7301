#include "hw/kernels/kernels.hpp"

#include <algorithm>

#include "hw/kernels/fast.hpp"
#include "hw/kernels/reference.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

template <typename Pointer>
Pointer optional(const std::vector<Pointer>& list, std::size_t index) {
  return index < list.size() ? list[index] : nullptr;
}

class Runner {
 public:
  Runner(const KernelContext& context, const Kernel& kernel, const KernelTensors& tensors)
      : c_(context), kernel_(kernel), t_(tensors) {}

  void embed(bool backward) const {
    const reference::EmbedShape shape{c_.B, c_.T, model().hidden, c_.vocabulary_rows(), first_row()};
    if (backward)
      reference::embed_backward(shape, t_.tokens, t_.in[0], t_.gradients[0], optional(t_.gradients, 1));
    else
      reference::embed(shape, t_.tokens, t_.parameters[0],
                       c_.tensor_index == 0 ? optional(t_.parameters, 1) : nullptr, t_.out[0]);
  }
  void norm(bool backward) const {
    const reference::NormShape shape{rows(), model().hidden, model().norm_epsilon,
                                     model().family == Family::gpt2};
    if (backward)
      reference::norm_backward(shape, t_.in[0], t_.in[1], t_.in[2], optional(t_.in, 3), t_.parameters[0],
                               t_.out[0], t_.gradients[0], optional(t_.gradients, 1));
    else
      reference::norm(shape, t_.in[0], t_.parameters[0], optional(t_.parameters, 1), t_.out[0], t_.out[1]);
  }
  double matmul() const {
    const KernelOp op = kernel_.op;
    const reference::MatmulShape shape{rows(), kernel_.n, kernel_.k};
    const bool fast = c_.library == KernelLibrary::fast;
    if (op == KernelOp::matmul)
      (fast ? fast::matmul : reference::matmul)(shape, t_.in[0], t_.parameters[0], optional(t_.parameters, 1),
                                                t_.out[0]);
    else if (op == KernelOp::matmul_input_gradient)
      (fast ? fast::matmul_input_gradient : reference::matmul_input_gradient)(shape, t_.in[0],
                                                                              t_.parameters[0], t_.out[0]);
    else
      (fast ? fast::matmul_weight_gradient : reference::matmul_weight_gradient)(
          shape, t_.in[0], t_.in[1], t_.gradients[0], optional(t_.gradients, 1));
    return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  }
  void rope(double sign) const { reference::rope(heads(), model().rope_theta, sign, t_.in[0], t_.out[0]); }
  double attention(bool backward) const {
    const reference::HeadShape shape = heads();
    const bool fast = c_.library == KernelLibrary::fast;
    if (backward)
      (fast ? fast::attention_backward : reference::attention_backward)(shape, t_.in[0], t_.in[1], t_.in[2],
                                                                        t_.in[3], t_.out[0]);
    else
      (fast ? fast::attention : reference::attention)(shape, t_.in[0], t_.out[0], t_.out[1]);
    // Forward a product over D and one over V, backward three and two; the causal half is counted like the rest.
    const std::int64_t widths = backward ? 3 * shape.D + 2 * shape.V() : shape.D + shape.V();
    return 2.0 * static_cast<double>(shape.B * shape.H) * attention_pairs(shape.T, shape.window) *
           static_cast<double>(widths);
  }
  void qk_norm(bool backward) const {
    if (backward)
      reference::qk_norm_backward(heads(), t_.in[0], t_.in[1], t_.in[2], t_.parameters[0], t_.parameters[1],
                                  t_.out[0], t_.out[1]);
    else
      reference::qk_norm(heads(), model().norm_epsilon, t_.parameters[0], t_.parameters[1], t_.in[0],
                         t_.out[0], t_.out[1]);
  }
  // The gradients of parameters, one after the other in one tensor.
  void accumulate() const {
    const float* next = t_.in[0];
    for (float* gradient : t_.gradients)
      for (std::int64_t i = 0; i < kernel_.n; ++i) gradient[i] += *next++;
  }
  void activation(bool backward) const {
    const reference::InnerShape shape{rows(), model().ffn / c_.tensor_parallel};
    if (backward)
      (model().gated() ? reference::swiglu_backward : reference::gelu_backward)(shape, t_.in[0], t_.in[1],
                                                                                t_.out[0]);
    else
      (model().gated() ? reference::swiglu : reference::gelu)(shape, t_.in[0], t_.out[0]);
  }
  void residual(bool backward) const {
    if (backward)
      reference::add_bias_gradient(rows(), model().hidden, t_.in[0], t_.gradients[0]);
    else
      reference::add_residual(rows(), model().hidden, t_.in[0], t_.in[1], optional(t_.parameters, 0),
                              t_.out[0]);
  }
  void loss() const {
    const KernelOp op = kernel_.op;
    const std::int64_t R = c_.vocabulary_rows();
    const reference::LogitsShape shape{rows(), R, first_row(),
                                       std::clamp<std::int64_t>(model().vocabulary - first_row(), 0, R)};
    if (op == KernelOp::logits_maximum) reference::logits_maximum(shape, t_.in[0], t_.out[0]);
    if (op == KernelOp::logits_sum) reference::logits_sum(shape, t_.in[0], t_.in[1], t_.targets, t_.out[0]);
    if (op == KernelOp::loss) reference::loss(rows(), t_.in[0], t_.in[1], t_.out[0]);
    if (op == KernelOp::loss_backward)
      reference::loss_backward(shape, c_.loss_scale, t_.in[0], t_.in[1], t_.in[2], t_.targets, t_.out[0]);
  }

 private:
  const KernelContext& c_;
  const Kernel& kernel_;
  const KernelTensors& t_;

  const Transformer& model() const { return *c_.transformer; }
  std::int64_t rows() const { return c_.B * c_.T; }
  std::int64_t first_row() const { return c_.vocabulary_rows() * c_.tensor_index; }
  reference::HeadShape heads() const {
    return {c_.B,
            c_.T,
            model().heads / c_.tensor_parallel,
            model().kv_heads / c_.tensor_parallel,
            model().head_dim,
            model().window(kernel_.layer),
            model().value_dim()};
  }
};

}  // namespace

double run_kernel(const KernelContext& context, const Kernel& kernel, const KernelTensors& tensors) {
  const Runner runner(context, kernel, tensors);
  const KernelOp op = kernel.op;
  switch (op) {
    case KernelOp::embed:
    case KernelOp::embed_backward:
      runner.embed(op == KernelOp::embed_backward);
      return 0;
    case KernelOp::norm:
    case KernelOp::norm_backward:
      runner.norm(op == KernelOp::norm_backward);
      return 0;
    case KernelOp::matmul:
    case KernelOp::matmul_input_gradient:
    case KernelOp::matmul_weight_gradient:
      return runner.matmul();
    case KernelOp::rope:
    case KernelOp::rope_backward:
      runner.rope(op == KernelOp::rope ? 1.0 : -1.0);
      return 0;
    case KernelOp::attention:
    case KernelOp::attention_backward:
      return runner.attention(op == KernelOp::attention_backward);
    case KernelOp::qk_norm:
    case KernelOp::qk_norm_backward:
      runner.qk_norm(op == KernelOp::qk_norm_backward);
      return 0;
    case KernelOp::accumulate:
      runner.accumulate();
      return 0;
    case KernelOp::activation:
    case KernelOp::activation_backward:
      runner.activation(op == KernelOp::activation_backward);
      return 0;
    case KernelOp::add_residual:
    case KernelOp::add_residual_backward:
      runner.residual(op == KernelOp::add_residual_backward);
      return 0;
    case KernelOp::logits_maximum:
    case KernelOp::logits_sum:
    case KernelOp::loss:
    case KernelOp::loss_backward:
      runner.loss();
      return 0;
    case KernelOp::all_reduce:
      break;
  }
  MOTLEY_CHECK(!"a collective is the World's, not a kernel");
  return 0;
}

}  // namespace motley
