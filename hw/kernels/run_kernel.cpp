#include "hw/kernels/run_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "hw/kernels/experts.hpp"
#include "hw/kernels/fast.hpp"
#include "hw/kernels/reference.hpp"
#include "models/base/refusal.hpp"
#include "models/program/routing.hpp"

namespace motley {
namespace {

// The element of the list at `index`, or null if the list is shorter.
template <typename Pointer>
Pointer optional(const std::vector<Pointer>& list, std::size_t index) {
  return index < list.size() ? list[index] : nullptr;
}

// Where experts have room for the most rows that could arrive, rows beyond those that did are zeros (see
// KernelCall::grouped_matmul()), and so is what an activation makes of them.
void leave_out_empty_rows(const KernelTensors& tensors, const Transformer& model, bool backward,
                          reference::InnerShape& shape) {
  const std::int64_t wide = (model.gated() ? 2 : 1) * shape.F, narrow = shape.F;
  const std::int64_t in_width = backward ? narrow : wide, out_width = backward ? wide : narrow;
  const float* const rows = tensors.in[0];  // backward: the gradients of the result
  const auto is_empty = [&](std::int64_t row) {
    return std::all_of(rows + row * in_width, rows + (row + 1) * in_width,
                       [](float each) { return each == 0; });
  };
  const std::int64_t room = shape.N;
  while (shape.N > 0 && is_empty(shape.N - 1)) --shape.N;
  std::fill(tensors.out[0] + shape.N * out_width, tensors.out[0] + room * out_width, 0.0F);
  if (backward && tensors.in.size() > 2) std::fill(tensors.out[1] + shape.N, tensors.out[1] + room, 0.0F);
}

template <typename Function>
Function* one_of(KernelLibrary library, Function* fast, Function* reference) {
  return library == KernelLibrary::fast ? fast : reference;
}

// Activates all rows of an MLP's inner tensor, or computes the gradient of what was activated.
void activate(KernelLibrary library, const Transformer& model, bool backward,
              const reference::InnerShape& shape, const KernelTensors& tensors) {
  if (model.gated() && model.activation == GateActivation::gelu && backward)
    reference::geglu_backward(shape, tensors.in[0], tensors.in[1], tensors.out[0]);
  else if (model.gated() && model.activation == GateActivation::gelu)
    reference::geglu(shape, tensors.in[0], tensors.out[0]);
  else if (model.gated() && backward)
    one_of(library, fast::swiglu_backward, reference::swiglu_backward)(shape, tensors.in[0], tensors.in[1],
                                                                       tensors.out[0]);
  else if (model.gated())
    one_of(library, fast::swiglu, reference::swiglu)(shape, tensors.in[0], tensors.out[0]);
  else if (backward)
    one_of(library, fast::gelu_backward, reference::gelu_backward)(shape, tensors.in[0], tensors.in[1],
                                                                   tensors.out[0]);
  else
    one_of(library, fast::gelu, reference::gelu)(shape, tensors.in[0], tensors.out[0]);
}

reference::HeadShape head_shape(const KernelContext& c, int layer) {
  const Transformer& t = *c.transformer;
  return {.B = c.B,
          .T = c.T,
          .H = t.heads / c.tensor_parallel,
          .G = t.kv_heads / c.tensor_parallel,
          .D = t.head_dim,
          .window = t.window(layer),
          .value_width = t.value_dim(),
          .layout = c.layout,
          .chunk = t.chunk(layer),
          .score_width = t.score_width,
          .softcap = t.attention_softcap,
          .rotated = t.rope_dim};
}

// One kernel with its tensors: each function calls the loops of one kind of kernel.
class KernelCall {
 public:
  KernelCall(const KernelContext& context, const Kernel& kernel, const KernelTensors& tensors)
      : c_(context), kernel_(kernel), t_(tensors) {}

  void embed(bool backward) const {
    const reference::EmbedShape shape{c_.B,        c_.T,     model().hidden, c_.vocabulary_rows(),
                                      first_row(), c_.layout};
    if (backward)
      reference::embed_backward(shape, t_.tokens, t_.in[0], t_.gradients[0], optional(t_.gradients, 1));
    else
      reference::embed(shape, t_.tokens, t_.parameters[0],
                       c_.tensor_index == 0 ? optional(t_.parameters, 1) : nullptr, t_.out[0]);
  }
  void norm(bool backward) const {
    const bool first_part = kernel_.k > 0;  // only the first k elements of a row of n are normed
    const reference::NormShape shape{rows_here(), first_part ? kernel_.k : model().hidden,
                                     model().norm_epsilon, model().family == Family::gpt2,
                                     first_part ? kernel_.n : 0};
    if (backward)
      reference::norm_backward(shape, t_.in[0], t_.in[1], t_.in[2], optional(t_.in, 3), t_.parameters[0],
                               t_.out[0], t_.gradients[0], optional(t_.gradients, 1));
    else
      reference::norm(shape, t_.in[0], t_.parameters[0], optional(t_.parameters, 1), t_.out[0], t_.out[1]);
  }
  double matmul() const {
    return matmul({rows_here(), kernel_.n, kernel_.k}, {t_.in[0], t_.in.size() > 1 ? t_.in[1] : nullptr}, 0);
  }
  // Multiplies each expert's rows by the expert's own weight. The last operand has the number of rows of each expert.
  double grouped_matmul() const {
    const float* counts = t_.in.back();
    const std::int64_t n = kernel_.n, k = kernel_.k;
    const bool forward = kernel_.op == KernelOp::grouped_matmul;
    const bool by_weight = kernel_.op == KernelOp::grouped_matmul_weight_gradient;
    double flops = 0;
    std::int64_t first = 0;
    for (std::int64_t expert = 0; expert < kernel_.groups; ++expert) {
      const auto m = static_cast<std::int64_t>(counts[expert]);
      if (m > 0)
        flops += matmul({m, n, k},
                        {t_.in[0] + first * (forward ? k : n), by_weight ? t_.in[1] + first * k : nullptr,
                         by_weight ? nullptr : t_.out[0] + first * (forward ? n : k)},
                        expert * n * k);
      first += m;
    }
    // Clears the rows beyond those of the experts: there is room for the most rows that could arrive.
    if (!by_weight && (c_.expert_parts > 1 || c_.slices > 1))
      std::fill(t_.out[0] + first * (forward ? n : k), t_.out[0] + exchange_rows() * (forward ? n : k), 0.0F);
    return flops;
  }
  void rope(double sign) const {
    one_of(c_.library, fast::rope, reference::rope)(heads(), model().rope_theta_of(kernel_.layer), sign,
                                                    t_.in[0], t_.out[0]);
  }
  double attention(bool backward) const {
    const reference::HeadShape shape = heads();
    const float* const keys = optional(t_.in, backward ? 4 : 1);
    const bool fast = c_.library == KernelLibrary::fast && keys == nullptr;
    if (backward && fast)
      fast::attention_backward(shape, t_.in[0], t_.in[1], t_.in[2], t_.in[3], t_.out[0]);
    else if (backward)
      reference::attention_backward(shape, t_.in[0], t_.in[1], t_.in[2], t_.in[3], t_.out[0], keys,
                                    optional(t_.out, 1));
    else if (fast)
      fast::attention(shape, t_.in[0], t_.out[0], t_.out[1]);
    else
      reference::attention(shape, t_.in[0], t_.out[0], t_.out[1], keys);
    // Forward has one product over D and one over V, backward three and two. Pairs that
    // the causal mask hides are counted too.
    const std::int64_t widths = backward ? 3 * shape.D + 2 * shape.V() : shape.D + shape.V();
    // Each of the ranks that hold parts of the sequence counts an equal share.
    const double pairs = attention_pairs(c_.documents, shape.tokens(), Sight{shape.window, shape.chunk}) /
                         static_cast<double>(c_.layout.parts);
    return 2.0 * static_cast<double>(shape.B * shape.H) * pairs * static_cast<double>(widths) *
           kernel_.factor;
  }
  void qk_norm(bool backward) const {
    if (backward)
      reference::qk_norm_backward(heads(), t_.in[0], t_.in[1], t_.in[2], t_.parameters[0], t_.parameters[1],
                                  t_.out[0], t_.out[1]);
    else
      reference::qk_norm(heads(), model().norm_epsilon, t_.parameters[0], t_.parameters[1], t_.in[0],
                         t_.out[0], t_.out[1]);
  }
  void element_by_element() const {
    if (kernel_.op == KernelOp::accumulate || kernel_.op == KernelOp::clear) return gradients();
    if (kernel_.op != KernelOp::scale) return rows_of_group();
    for (std::int64_t i = 0; i < kernel_.m * kernel_.n; ++i)
      t_.out[0][i] = static_cast<float>(kernel_.factor) * t_.in[0][i];
  }
  // Clears the tensor that holds the gradients of several parameters, or adds its values to each parameter's gradient.
  void gradients() const {
    if (kernel_.op == KernelOp::clear) return void(std::fill_n(t_.out[0], kernel_.n, 0.0F));
    const float* next = t_.in[0];
    for (float* gradient : t_.gradients)
      for (std::int64_t i = 0; i < kernel_.n; ++i) gradient[i] += *next++;
  }
  // Copies this rank's rows out of all rows of its group, or into them.
  void rows_of_group() const {
    const bool over_context = kernel_.over == GroupKind::context;
    const std::int64_t parts = over_context ? c_.layout.parts : c_.tensor_parallel;
    const std::int64_t count = kernel_.m / parts * kernel_.n;
    const std::int64_t first = count * (over_context ? c_.layout.index : c_.tensor_index);
    if (kernel_.op == KernelOp::take_rows)
      std::copy_n(t_.in[0] + first, count, t_.out[0]);
    else
      std::copy_n(t_.in[0], count, t_.out[0] + first);
  }
  void keys() const {
    if (kernel_.op == KernelOp::place_keys)
      reference::place_keys(heads(), t_.in[0], t_.out[0]);
    else
      reference::take_keys(heads(), t_.in[0], t_.in[1], t_.out[0]);
  }
  void experts() const {
    const Experts& e = model().experts;
    const std::int64_t slice = slice_size(rows(), c_.slices);
    const std::int64_t first = std::min(rows(), c_.slice * slice), last = std::min(rows(), first + slice);
    const reference::RouteShape routed{rows(), &e, first, last, c_.expert_parts, segment_rows()};
    const reference::CopyShape copied{rows(), e.per_token, model().hidden, exchange_rows()};
    switch (kernel_.op) {
      case KernelOp::route:
        return reference::route(routed, t_.in[0], optional(t_.parameters, 0),
                                {t_.out[0], t_.out[1], t_.out[2], t_.out[3]});
      case KernelOp::route_backward:
        return reference::route_backward(routed, t_.in[0], t_.in[1], t_.in[2], t_.out[0]);
      case KernelOp::dispatch:
        return reference::dispatch(copied, t_.in[0], t_.in[1], t_.out[0]);
      case KernelOp::dispatch_backward:
        return reference::dispatch_backward(copied, t_.in[0], t_.in[1], t_.out[0]);
      case KernelOp::dispatch_weights:
        return reference::dispatch_weights(copied, t_.in[0], t_.in[1], t_.out[0]);
      case KernelOp::dispatch_weights_backward:
        return reference::dispatch_weights_backward(copied, t_.in[0], t_.in[1], t_.out[0]);
      case KernelOp::combine:  // without weights: as gradients of copies are summed
        if (t_.in.size() == 2) return reference::dispatch_backward(copied, t_.in[0], t_.in[1], t_.out[0]);
        return reference::combine(copied, t_.in[0], t_.in[1], t_.in[2], t_.out[0]);
      case KernelOp::combine_backward:
        if (t_.in.size() == 2) return reference::dispatch(copied, t_.in[0], t_.in[1], t_.out[0]);
        return reference::combine_backward(copied, t_.in[0], t_.in[1], t_.in[2], t_.in[3], t_.out[0],
                                           t_.out[1]);
      case KernelOp::regroup:
      case KernelOp::ungroup:
        return regroup();
      case KernelOp::gate:
        return reference::gate(rows(), model().hidden, t_.in[0], t_.in[1], t_.out[0]);
      default:
        return reference::gate_backward(rows(), model().hidden, t_.in[0], t_.in[1], t_.in[2], t_.out[0],
                                        t_.out[1]);
    }
  }
  void regroup() const {
    const reference::RegroupShape shape{c_.expert_parts, model().experts.count / c_.expert_parts,
                                        segment_rows(), kernel_.n > 0 ? kernel_.n : model().hidden};
    if (kernel_.op == KernelOp::ungroup) return reference::ungroup(shape, t_.in[0], t_.in[1], t_.out[0]);
    reference::regroup(shape, t_.in[0], t_.in[1], t_.out[0], optional(t_.out, 1));
  }
  void latent_heads(bool backward) const {
    const LatentAttention& latent = model().latent;
    const reference::LatentShape shape{c_.B,
                                       c_.T,
                                       model().heads / c_.tensor_parallel,
                                       model().head_dim - latent.rope_dim,
                                       latent.rope_dim,
                                       latent.value_dim,
                                       latent.kv_rank,
                                       model().rope_theta,
                                       c_.layout};
    if (backward)
      reference::latent_heads_backward(shape, t_.in[0], t_.out[0], t_.out[1], t_.out[2]);
    else
      reference::latent_heads(shape, t_.in[0], t_.in[1], t_.in[2], t_.out[0]);
  }
  void activation(bool backward) const {
    reference::InnerShape shape{rows(), model().ffn / c_.tensor_parallel};
    if (kernel_.m > 0) shape = {kernel_.m, kernel_.n};
    if (c_.expert_parts > 1 || c_.slices > 1) leave_out_empty_rows(t_, model(), backward, shape);
    if (backward && t_.in.size() > 2)
      return one_of(c_.library, fast::weighed_swiglu_backward, reference::weighed_swiglu_backward)(
          shape, t_.in[0], t_.in[1], t_.in[2], t_.out[0], t_.out[1]);
    activate(c_.library, model(), backward, shape, t_);
    if (!backward && t_.in.size() > 1) reference::weigh_rows(shape, t_.in[1], t_.out[0]);
  }
  void residual(bool backward) const {
    if (backward)
      reference::add_bias_gradient(rows_here(), model().hidden, t_.in[0], t_.gradients[0]);
    else
      reference::add_residual(rows_here(), kernel_.n > 0 ? kernel_.n : model().hidden, t_.in[0], t_.in[1],
                              optional(t_.parameters, 0), t_.out[0]);
  }
  void loss() const {
    const KernelOp op = kernel_.op;
    const std::int64_t R = c_.vocabulary_rows();
    const reference::LogitsShape shape{rows(), R, first_row(),
                                       std::clamp<std::int64_t>(model().vocabulary - first_row(), 0, R)};
    if (op == KernelOp::softcap) reference::softcap(rows() * R, kernel_.factor, t_.in[0], t_.out[0]);
    if (op == KernelOp::softcap_backward)
      reference::softcap_backward(rows() * R, kernel_.factor, t_.in[0], t_.in[1], t_.out[0]);
    if (op == KernelOp::logits_maximum) reference::logits_maximum(shape, t_.in[0], t_.out[0]);
    if (op == KernelOp::logits_sum)
      one_of(c_.library, fast::logits_sum, reference::logits_sum)(shape, t_.in[0], t_.in[1], t_.targets,
                                                                  t_.out[0]);
    if (op == KernelOp::loss) reference::loss(rows(), t_.in[0], t_.in[1], t_.out[0]);
    if (op == KernelOp::loss_backward)
      one_of(c_.library, fast::loss_backward, reference::loss_backward)(
          shape, kernel_.factor * c_.loss_scale, t_.in[0], t_.in[1], t_.in[2], t_.targets, t_.out[0]);
  }

 private:
  const KernelContext& c_;
  const Kernel& kernel_;
  const KernelTensors& t_;

  struct Operands {
    const float* first;       // x, or dy of a gradient
    const float* second;      // x of a weight gradient
    float* result = nullptr;  // null: the kernel's first output
  };
  // Computes one product and returns its FLOPs. Its weight begins `weight` elements into the parameter.
  double matmul(const reference::MatmulShape& shape, const Operands& with, std::int64_t weight) const {
    float* const result = with.result != nullptr || t_.out.empty() ? with.result : t_.out[0];
    if (kernel_.op == KernelOp::matmul || kernel_.op == KernelOp::grouped_matmul)
      one_of(c_.library, fast::matmul, reference::matmul)(shape, with.first, t_.parameters[0] + weight,
                                                          optional(t_.parameters, 1), result);
    else if (kernel_.op == KernelOp::matmul_input_gradient ||
             kernel_.op == KernelOp::grouped_matmul_input_gradient)
      one_of(c_.library, fast::matmul_input_gradient, reference::matmul_input_gradient)(
          shape, with.first, t_.parameters[0] + weight, result);
    else
      one_of(c_.library, fast::matmul_weight_gradient, reference::matmul_weight_gradient)(
          shape, with.first, with.second, t_.gradients[0] + weight, optional(t_.gradients, 1));
    return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  }

  const Transformer& model() const { return *c_.transformer; }
  std::int64_t rows() const { return c_.B * c_.T; }
  std::int64_t rows_here() const { return kernel_.m > 0 ? kernel_.m : rows(); }
  std::int64_t segment_rows() const {
    return exchange_segment(model().experts, slice_size(rows(), c_.slices), c_.expert_parts, c_.expert_room);
  }
  std::int64_t exchange_rows() const { return c_.expert_parts * segment_rows(); }
  std::int64_t first_row() const { return c_.vocabulary_rows() * c_.tensor_index; }
  reference::HeadShape heads() const { return head_shape(c_, kernel_.layer); }
};

// True for kernels that only layers with experts have, other than their matmuls.
bool is_expert_kernel(KernelOp op) {
  switch (op) {
    case KernelOp::route:
    case KernelOp::route_backward:
    case KernelOp::dispatch:
    case KernelOp::dispatch_backward:
    case KernelOp::dispatch_weights:
    case KernelOp::dispatch_weights_backward:
    case KernelOp::combine:
    case KernelOp::combine_backward:
    case KernelOp::gate:
    case KernelOp::gate_backward:
    case KernelOp::regroup:
    case KernelOp::ungroup:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string describe(KernelLibrary library) {
  constexpr const char* kCode = MOTLEY_KERNELS_CODE;
  if (library == KernelLibrary::reference) return fmt::format("reference kernels, code {}", kCode);
  const std::string version = fast::library_version();
  return fmt::format("fast kernels, {}{}{}, code {}", fast::library_name(), version.empty() ? "" : " ",
                     version, kCode);
}

double run_kernel(const KernelContext& context, const Kernel& kernel, const KernelTensors& tensors) {
  const KernelCall call(context, kernel, tensors);
  if (is_expert_kernel(kernel.op)) {
    call.experts();
    return 0;
  }
  switch (const KernelOp op = kernel.op; op) {
    case KernelOp::embed:
    case KernelOp::embed_backward:
      call.embed(op == KernelOp::embed_backward);
      return 0;
    case KernelOp::norm:
    case KernelOp::norm_backward:
      call.norm(op == KernelOp::norm_backward);
      return 0;
    case KernelOp::matmul:
    case KernelOp::matmul_input_gradient:
    case KernelOp::matmul_weight_gradient:
      return call.matmul();
    case KernelOp::rope:
    case KernelOp::rope_backward:
      call.rope(op == KernelOp::rope ? 1.0 : -1.0);
      return 0;
    case KernelOp::attention:
    case KernelOp::attention_backward:
      return call.attention(op == KernelOp::attention_backward);
    case KernelOp::qk_norm:
    case KernelOp::qk_norm_backward:
      return call.qk_norm(op == KernelOp::qk_norm_backward), 0;
    case KernelOp::accumulate:
    case KernelOp::clear:
    case KernelOp::scale:
    case KernelOp::take_rows:
    case KernelOp::place_rows:
      call.element_by_element();
      return 0;
    case KernelOp::place_keys:
    case KernelOp::take_keys:
      call.keys();
      return 0;
    case KernelOp::grouped_matmul:
    case KernelOp::grouped_matmul_input_gradient:
    case KernelOp::grouped_matmul_weight_gradient:
      return call.grouped_matmul();
    case KernelOp::latent_heads:
    case KernelOp::latent_heads_backward:
      return call.latent_heads(op == KernelOp::latent_heads_backward), 0;
    case KernelOp::activation:
    case KernelOp::activation_backward:
      call.activation(op == KernelOp::activation_backward);
      return 0;
    case KernelOp::add_residual:
    case KernelOp::add_residual_backward:
      call.residual(op == KernelOp::add_residual_backward);
      return 0;
    case KernelOp::softcap:
    case KernelOp::softcap_backward:
    case KernelOp::logits_maximum:
    case KernelOp::logits_sum:
    case KernelOp::loss:
    case KernelOp::loss_backward:
      call.loss();
      return 0;
    default:
      MOTLEY_CHECK(!"a collective is the World's, not a kernel");
      return 0;
  }
}

}  // namespace motley
