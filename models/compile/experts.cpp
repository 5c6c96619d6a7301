// The routed experts of a layer: route, copy tokens to their experts, two grouped matmuls, combine; and the shared
// expert that every token passes. Expert-tensor parallelism cuts each expert's inner width, as tensor parallelism
// cuts the dense feed-forward part; every rank has the whole router (arXiv:2101.03961, section 2; Megatron-LM). Where
// experts are divided over ranks, an all_to_all sends the copies to their experts' rank and another one sends them
// back; the numbers of copies are sent first. Where experts are cut less than the other layers, each rank of a
// tensor-parallel group routes a slice of its tokens, and the sum that ends the feed-forward part brings the slices
// together. There is no auxiliary loss and no capacity, so no token is dropped: a rank's tensors have room for as
// many copies as can come. Where the weights of experts are applied: Strategy::expert_weights. Weights that travel with
// the copies follow them at once (MoEAlltoAllTokenDispatcher of Megatron-Core 0.13, 2025-07). Assumes: weights that
// multiply the inputs of experts (Llama 4) take the time that they take on outputs or activations.
#include <optional>

#include "models/compile/stage_parts.hpp"

namespace motley {
namespace {

Kernel& activate(KernelWriter& w, KernelOp op, const Ids& in, TensorId out, std::int64_t rows,
                 std::int64_t width) {
  Kernel& kernel = w.emit(op, in, {out});
  kernel.m = rows;
  kernel.n = width;
  return kernel;
}

struct ExpertWidths {
  std::int64_t N, C, K, E, R, F, S;
  explicit ExpertWidths(const KernelWriter& w)
      : N(w.N()),
        C(w.transformer().hidden),
        K(w.transformer().experts.per_token),
        E(w.transformer().experts.count),
        R(w.exchange().rows),
        F(w.transformer().experts.ffn / w.expert_cut()),
        S(w.transformer().experts.shared_ffn / w.tp()) {}
};

Ids router_weights(const KernelWriter& w) { return w.layer_weights({"router.weight", "router.logit.bias"}); }
Ids gate_up_weights(const KernelWriter& w) {
  return w.layer_weights({"experts.gate_up.weight", "experts.gate_up.bias"});
}
Ids down_weights(const KernelWriter& w) {
  return w.layer_weights({"experts.down.weight", "experts.down.bias"});
}

void route(KernelWriter& w, const ExpertWidths& s, TensorId y, KeptExperts& kept) {
  kept.logits = w.exact("router.logits", {s.N, s.E});
  w.matmul(y, kept.logits, router_weights(w), s.E, s.C, false);
  kept.weights = w.exact("router.weights", {s.N, s.K});
  kept.taken = w.exact("router.taken", {s.N, s.K});
  kept.rows = w.exact("router.rows", {s.N, s.K});
  kept.counts = w.exact("router.counts", {s.E});
  w.emit(KernelOp::route, {kept.logits}, {kept.weights, kept.taken, kept.rows, kept.counts},
         w.layer_weights({"router.bias"}));
}

// One number for each row that is sent: the weight of the token's copy, where these travel with the copies.
std::optional<TensorId> weights_to_send(KernelWriter& w, const KeptExperts& kept) {
  if (!w.weighs_activations()) return std::nullopt;
  const TensorId sent = w.expert_numbers(w.expert_parts() == 1 ? "experts.weights" : "experts.weights.sent");
  w.emit(KernelOp::dispatch_weights, {kept.weights, kept.rows}, {sent});
  return sent;
}

// Sends copies, and their weights behind them, from the ranks that route them to their experts' ranks, and sorts them
// by expert.
void to_experts(KernelWriter& w, const ExpertWidths& s, KeptExperts& kept, TensorId sent) {
  const std::optional<TensorId> sent_weights = weights_to_send(w, kept);
  kept.copies = sent;
  if (sent_weights) kept.row_weights = *sent_weights;
  if (w.expert_parts() == 1) return;
  w.all_to_all(kept.counts);
  w.all_to_all(sent);
  if (sent_weights) w.all_to_all(*sent_weights);
  kept.copies = w.expert_rows("experts.copies", s.C, true);
  const TensorId counts = w.exact("experts.counts", {s.E / w.expert_parts()});
  w.emit(KernelOp::regroup, {sent, kept.counts}, {kept.copies, counts});
  kept.sent_counts = kept.counts;
  kept.counts = counts;
  if (!sent_weights) return;
  kept.row_weights = w.expert_numbers("experts.weights");
  w.emit(KernelOp::regroup, {*sent_weights, kept.sent_counts.value()}, {kept.row_weights}).n = 1;
}

TensorId from_experts(KernelWriter& w, const ExpertWidths& s, const KeptExperts& kept, TensorId copies) {
  if (w.expert_parts() == 1) return copies;
  const TensorId returned = w.expert_rows("experts.returned", s.C);
  w.emit(KernelOp::ungroup, {copies, kept.sent_counts.value()}, {returned});
  w.all_to_all(returned);
  return returned;
}

TensorId gradients_to_experts(KernelWriter& w, const ExpertWidths& s, const KeptExperts& kept,
                              TensorId sent) {
  if (w.expert_parts() == 1) return sent;
  w.all_to_all(sent);
  const TensorId copies = w.expert_rows_gradient("experts.down", s.C, true);
  w.emit(KernelOp::regroup, {sent, kept.sent_counts.value()}, {copies});
  return copies;
}

// Gradients that go back to the ranks which routed the copies: those of the copies, and those of their weights, where
// these travelled with them.
struct ReturnedGradients {
  TensorId copies;
  std::optional<TensorId> weights;
};

ReturnedGradients gradients_from_experts(KernelWriter& w, const ExpertWidths& s, const KeptExperts& kept,
                                         ReturnedGradients here) {
  if (w.expert_parts() == 1) return here;
  ReturnedGradients back;
  back.copies = w.expert_rows_gradient("experts.sent", s.C);
  w.emit(KernelOp::ungroup, {here.copies, kept.sent_counts.value()}, {back.copies});
  if (here.weights) {
    back.weights = w.expert_numbers("experts.weights.sent.gradient", TensorRole::activation_gradient);
    w.emit(KernelOp::ungroup, {*here.weights, kept.sent_counts.value()}, {*back.weights}).n = 1;
  }
  w.all_to_all(back.copies);
  if (back.weights) w.all_to_all(*back.weights);
  return back;
}

// The activations of the experts, multiplied by the weights of their rows if these travel with the copies.
void activate_experts(KernelWriter& w, const ExpertWidths& s, KeptExperts& kept) {
  kept.activated = w.expert_rows("experts.activated", s.F);
  Ids in = {kept.inner};
  if (w.weighs_activations()) in.push_back(kept.row_weights);
  activate(w, KernelOp::activation, in, kept.activated, s.R, s.F);
}

void activate_shared(KernelWriter& w, const ExpertWidths& s, KeptExperts& kept) {
  kept.shared_activated = w.activation("shared.activated", {s.N, s.S});
  activate(w, KernelOp::activation, {kept.shared_inner}, kept.shared_activated, s.N, s.S);
}

// The shared expert's output (N,C), not yet summed over tensor-parallel ranks.
TensorId shared_forward(KernelWriter& w, const ExpertWidths& s, TensorId y, KeptExperts& kept) {
  kept.shared_inner = w.activation("shared.inner", {s.N, 2 * s.S});
  w.matmul(y, kept.shared_inner, w.layer_weights({"shared.gate_up.weight"}), 2 * s.S, s.C);
  activate_shared(w, s, kept);
  kept.shared_inner = w.keep_inner(kept.shared_inner);
  kept.shared_out = w.activation("shared.down", {s.N, s.C});
  w.matmul(kept.shared_activated, kept.shared_out, w.layer_weights({"shared.down.weight"}), s.C, s.S);
  if (!w.transformer().experts.shared_gate) return kept.shared_out;
  kept.shared_gate = w.exact("shared.gate", {s.N, 1});
  w.matmul(y, *kept.shared_gate, w.layer_weights({"shared.gate.weight"}), 1, s.C, false);
  const TensorId gated = w.activation("shared.gated", {s.N, s.C});
  w.emit(KernelOp::gate, {kept.shared_out, *kept.shared_gate}, {gated});
  return gated;
}

TensorId add(KernelWriter& w, TensorId a, TensorId b, const char* name, bool backward) {
  const std::vector<std::int64_t> shape = {w.N(), w.transformer().hidden};
  const TensorId sum = backward ? w.gradient(name, shape) : w.activation(name, shape);
  w.emit(KernelOp::add_residual, {a, b}, {sum});
  return sum;
}

// Gradients of y: `partial` must be summed over tensor-parallel ranks, `whole` is complete on each.
struct InputGradients {
  TensorId partial;
  std::optional<TensorId> whole;
};

InputGradients shared_backward(KernelWriter& w, const ExpertWidths& s, std::optional<TensorId> y,
                               const KeptExperts& kept, TensorId dout) {
  InputGradients dy;
  TensorId dshared = dout;
  if (kept.shared_gate) {
    dshared = w.gradient("shared.down", {s.N, s.C});
    const TensorId dgate = w.exact_gradient("shared.gate", {s.N, 1});
    w.emit(KernelOp::gate_backward, {dout, kept.shared_out, *kept.shared_gate}, {dshared, dgate});
    w.all_reduce(dgate);
    dy.whole = w.gradient("shared.gate.input", {s.N, s.C});
    w.matmul_gradients(dgate, *dy.whole, y, w.layer_weights({"shared.gate.weight"}), 1, s.C, false);
  }
  const TensorId dactivated = w.gradient("shared.activated", {s.N, s.S});
  w.matmul_gradients(dshared, dactivated, kept.shared_activated, w.layer_weights({"shared.down.weight"}), s.C,
                     s.S);
  const TensorId dinner = w.gradient("shared.inner", {s.N, 2 * s.S});
  activate(w, KernelOp::activation_backward, {dactivated, kept.shared_inner}, dinner, s.N, s.S);
  dy.partial = w.gradient("shared.input", {s.N, s.C});
  w.matmul_gradients(dinner, dy.partial, y, w.layer_weights({"shared.gate_up.weight"}), 2 * s.S, s.C);
  return dy;
}

// Returns the gradient of the experts' outputs, on their ranks. `dweights` gets that of the weights, if these are
// applied where outputs are combined.
TensorId combine_backward(KernelWriter& w, const ExpertWidths& s, const KeptExperts& kept, TensorId dout,
                          TensorId& dweights) {
  const TensorId dreturned =
      w.expert_rows_gradient(w.expert_parts() == 1 ? "experts.down" : "experts.returned", s.C, true);
  if (w.weighs_activations()) {
    w.emit(KernelOp::combine_backward, {dout, kept.rows}, {dreturned});
  } else {
    dweights = w.exact_gradient("router.weights", {s.N, s.K});
    w.emit(KernelOp::combine_backward, {dout, kept.out, kept.rows, kept.weights}, {dreturned, dweights});
    w.all_reduce(dweights);
  }
  return gradients_to_experts(w, s, kept, dreturned);
}

InputGradients routed_backward(KernelWriter& w, const ExpertWidths& s, std::optional<TensorId> y,
                               const KeptExperts& kept, TensorId dout) {
  TensorId dweights;
  const TensorId dexperts = combine_backward(w, s, kept, dout, dweights);
  const TensorId dactivated = w.expert_rows_gradient("experts.activated", s.F);
  w.grouped_matmul_gradients(dexperts, kept.counts, dactivated, kept.activated, down_weights(w), s.C, s.F);
  const TensorId dinner = w.expert_rows_gradient("experts.inner", 2 * s.F);
  ReturnedGradients here;
  if (w.weighs_activations()) {
    here.weights = w.expert_numbers("experts.weights.gradient", TensorRole::activation_gradient);
    activate(w, KernelOp::activation_backward, {dactivated, kept.inner, kept.row_weights}, dinner, s.R, s.F)
        .out.push_back(*here.weights);
  } else {
    activate(w, KernelOp::activation_backward, {dactivated, kept.inner}, dinner, s.R, s.F);
  }
  here.copies = w.expert_rows_gradient("experts.copies", s.C);
  w.grouped_matmul_gradients(dinner, kept.counts, here.copies, kept.copies, gate_up_weights(w), 2 * s.F, s.C);
  const ReturnedGradients back = gradients_from_experts(w, s, kept, here);
  InputGradients dy;
  dy.partial = w.gradient("experts.input", {s.N, s.C});
  w.emit(KernelOp::dispatch_backward, {back.copies, kept.rows}, {dy.partial});
  if (back.weights) {
    dweights = w.exact_gradient("router.weights", {s.N, s.K});
    w.emit(KernelOp::dispatch_weights_backward, {*back.weights, kept.rows}, {dweights});
    w.all_reduce(dweights);
  }
  const TensorId dlogits = w.exact_gradient("router.logits", {s.N, s.E});
  w.emit(KernelOp::route_backward, {dweights, kept.logits, kept.taken}, {dlogits},
         w.layer_weights({"router.bias"}));
  dy.whole = w.gradient("router.input", {s.N, s.C});
  w.matmul_gradients(dlogits, *dy.whole, y, router_weights(w), s.E, s.C, false);
  return dy;
}

}  // namespace

TensorId experts_forward(KernelWriter& w, TensorId y, KeptExperts& kept) {
  const ExpertWidths s(w);
  route(w, s, y, kept);
  const TensorId sent = w.expert_rows(w.expert_parts() == 1 ? "experts.copies" : "experts.sent", s.C, true);
  w.emit(KernelOp::dispatch, {y, kept.rows}, {sent});
  to_experts(w, s, kept, sent);
  kept.inner = w.expert_rows("experts.inner", 2 * s.F);
  w.grouped_matmul(kept.copies, kept.counts, kept.inner, gate_up_weights(w), 2 * s.F, s.C);
  activate_experts(w, s, kept);
  kept.inner = w.keep_inner(kept.inner);
  const TensorId out = w.expert_rows("experts.down", s.C);
  w.grouped_matmul(kept.activated, kept.counts, out, down_weights(w), s.C, s.F);
  kept.out = from_experts(w, s, kept, out);
  const TensorId combined = w.activation("experts.combined", {s.N, s.C});
  Ids in = {kept.out, kept.rows};
  if (!w.weighs_activations()) in.push_back(kept.weights);
  w.emit(KernelOp::combine, in, {combined});
  if (s.S == 0) return combined;
  const TensorId shared = shared_forward(w, s, y, kept);
  return add(w, combined, shared, "experts.sum", false);
}

void experts_again(KernelWriter& w, const Recompute& recompute, std::optional<TensorId> y,
                   KeptExperts& kept) {
  const ExpertWidths s(w);
  if (recompute.has(Module::router)) {
    const TensorId counts = kept.counts;  // those of the experts' ranks stay
    route(w, s, y.value(), kept);
    kept.counts = counts;
  }
  if (!recompute.has(Module::activation)) return;
  activate_experts(w, s, kept);
  if (s.S > 0) activate_shared(w, s, kept);
}

TensorId experts_backward(KernelWriter& w, std::optional<TensorId> y, const KeptExperts& kept,
                          TensorId dout) {
  const ExpertWidths s(w);
  InputGradients dy = routed_backward(w, s, y, kept, dout);
  if (s.S > 0) {
    const InputGradients shared = shared_backward(w, s, y, kept, dout);
    dy.partial = add(w, dy.partial, shared.partial, "experts.partial", true);
    if (shared.whole) dy.whole = add(w, dy.whole.value(), *shared.whole, "experts.whole", true);
  }
  constexpr TensorRole role = TensorRole::activation_gradient;
  const TensorId partial = w.sum_rows(dy.partial, "experts.sum.gradient", role);
  const TensorId whole = w.own_rows(dy.whole.value(), "router.rows.gradient", role);
  const TensorId sum = w.gradient("norm2", {w.rows_between(), w.transformer().hidden});
  w.emit_between(KernelOp::add_residual, {partial, whole}, {sum});
  return sum;
}

}  // namespace motley
