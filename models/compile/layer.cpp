// A layer of the transformer: attention and a feed-forward part, each after a norm and added to the residual. `R` in
// shapes is the number of rows that this rank holds between cut matmuls.
#include "models/compile/stage_parts.hpp"

namespace motley {
namespace {

// The input of attention or of the feed-forward part, made from `x`: normed, or `x` itself.
TensorId normed_input(KernelWriter& w, TensorId x, const char* name, TensorId& statistics) {
  return w.transformer().norms_inputs() ? w.norm_between(x, name, statistics) : x;
}

// The gradient of `x`, from that of normed_input() and from `dresidual`.
TensorId normed_input_backward(KernelWriter& w, TensorId dy, TensorId x, TensorId statistics,
                               const char* name, TensorId dresidual, TensorId dx) {
  if (w.transformer().norms_inputs())
    w.emit_between(
        KernelOp::norm_backward, {dy, x, statistics, dresidual}, {dx},
        w.layer_weights({(std::string(name) + ".weight").c_str(), (std::string(name) + ".bias").c_str()}));
  else
    w.emit_between(KernelOp::add_residual, {dy, dresidual}, {dx});
  return dx;
}

// What is added to the residual: `sum`, or the norm over it, for which `kept` gets the sum.
TensorId normed_output(KernelWriter& w, TensorId sum, const char* name, std::optional<TensorId>& kept,
                       TensorId& statistics) {
  if (!w.transformer().norms_outputs()) return sum;
  kept = sum;
  return w.norm_between(sum, name, statistics);
}
TensorId normed_output_backward(KernelWriter& w, TensorId dout, std::optional<TensorId> kept,
                                TensorId statistics, const std::string& name) {
  return kept ? w.norm_between_backward(dout, *kept, statistics, name, name + ".input") : dout;
}

void feed_forward(KernelWriter& w, KeptLayer& kept, std::optional<ChunkId> gives_out) {
  kept.y2 = normed_input(w, kept.middle, "norm2", kept.statistics2);
  const TensorId y2 = w.all_rows(kept.y2, "norm2.rows");
  const TensorId contracted = w.transformer().has_experts(w.layer()) ? experts_forward(w, y2, kept.experts)
                                                                     : dense_forward(w, y2, kept.dense);
  const TensorId summed = normed_output(w, w.sum_rows(contracted, "fc2.sum"), "post_norm2", kept.contracted,
                                        kept.contracted_statistics);
  kept.output = gives_out ? w.boundary(*gives_out, TensorUse::chunk_output, TensorRole::activation)
                          : w.activation("output", {w.rows_between(), w.transformer().hidden});
  w.emit_between(KernelOp::add_residual, {summed, kept.middle}, {kept.output}, w.layer_weights({"fc2.bias"}));
}

// The bias of a row-parallel matmul is added to the sum over ranks, so the sum's gradient is its gradient.
void bias_gradient(KernelWriter& w, TensorId dy, const char* name) {
  const Ids bias = w.layer_weights({name});
  if (!bias.empty() && !w.frozen(bias[0])) w.emit_between(KernelOp::add_residual_backward, {dy}, {}, bias);
}

// Whether the backward needs a cut matmul's input: only weight gradients do, and it is gathered again for them.
bool needs_input(const KernelWriter& w, const char* linear) {
  return !w.transformer().lora.used() || w.transformer().lora.beside(linear);
}

TensorId feed_forward_backward(KernelWriter& w, const KeptLayer& kept, TensorId dout) {
  const bool experts = w.transformer().has_experts(w.layer());
  bias_gradient(w, dout, "fc2.bias");
  const TensorId dsummed =
      normed_output_backward(w, dout, kept.contracted, kept.contracted_statistics, "post_norm2");
  const TensorId dcontracted = w.all_rows(dsummed, "fc2.rows.gradient", TensorRole::activation_gradient);
  std::optional<TensorId> y2;
  if (experts ? !w.transformer().lora.used() : needs_input(w, inner_name(w.transformer())))
    y2 = w.all_rows(kept.y2, "norm2.rows.again");
  const TensorId dy2 = experts ? experts_backward(w, y2, kept.experts, dcontracted)
                               : dense_backward(w, y2, kept.dense, dcontracted);
  const TensorId dmiddle =
      normed_input_backward(w, dy2, kept.middle, kept.statistics2, "norm2", dout,
                            w.gradient("middle", {w.rows_between(), w.transformer().hidden}));
  w.set_use(dmiddle, TensorUse::attention_sum);
  return dmiddle;
}

TensorId attention_part_backward(KernelWriter& w, const KeptLayer& kept, TensorId dmiddle,
                                 std::optional<ChunkId> takes_in) {
  bias_gradient(w, dmiddle, "proj.bias");
  const TensorId dsummed =
      normed_output_backward(w, dmiddle, kept.attended, kept.attended_statistics, "post_norm1");
  const TensorId dprojected = w.all_rows(dsummed, "proj.rows.gradient", TensorRole::activation_gradient);
  const TensorId dqkv = attend_backward(w, kept.attention, dprojected);
  std::optional<TensorId> y1;
  if (needs_input(w, "qkv")) y1 = w.all_rows(kept.y1, "norm1.rows.again");
  const TensorId dy1 = heads_backward(w, y1, kept.attention, dqkv);
  const TensorId dx = takes_in
                          ? w.boundary(*takes_in, TensorUse::chunk_input, TensorRole::activation_gradient)
                          : w.gradient("input", {w.rows_between(), w.transformer().hidden});
  return normed_input_backward(w, dy1, kept.input, kept.statistics1, "norm1", dmiddle, dx);
}

void attention_again(KernelWriter& w, const Recompute& recompute, KeptLayer& kept) {
  if (recompute.has(Module::norms)) kept.y1 = normed_input(w, kept.input, "norm1", kept.statistics1);
  const LatentAttention& latent = w.transformer().latent;
  if (latent.used()) {
    std::optional<TensorId> y1;
    if (recompute.has(Module::latent) && latent.q_rank == 0) y1 = w.all_rows(kept.y1, "norm1.rows");
    latent_again(w, recompute, y1, kept.attention.latent, kept.attention.qkv);
  }
  if (recompute.has(Module::attention)) attend(w, kept.attention);
}

void feed_forward_again(KernelWriter& w, const Recompute& recompute, KeptLayer& kept) {
  if (recompute.has(Module::norms)) kept.y2 = normed_input(w, kept.middle, "norm2", kept.statistics2);
  if (w.transformer().has_experts(w.layer())) {
    std::optional<TensorId> y2;
    if (recompute.has(Module::router)) y2 = w.all_rows(kept.y2, "norm2.rows");
    return experts_again(w, recompute, y2, kept.experts);
  }
  if (recompute.has(Module::inner)) dense_inner(w, w.all_rows(kept.y2, "norm2.rows"), kept.dense);
  if (recompute.has(Module::activation)) dense_activation(w, kept.dense);
}

}  // namespace

KeptLayer layer_forward(KernelWriter& w, TensorId input, std::optional<ChunkId> gives_out) {
  KeptLayer kept;
  kept.input = input;
  kept.y1 = normed_input(w, input, "norm1", kept.statistics1);
  const TensorId y1 = w.all_rows(kept.y1, "norm1.rows");
  const TensorId projected = attention_forward(w, y1, kept.attention);
  const TensorId summed = normed_output(w, w.sum_rows(projected, "proj.sum"), "post_norm1", kept.attended,
                                        kept.attended_statistics);
  kept.middle = w.activation("middle", {w.rows_between(), w.transformer().hidden});
  w.set_use(kept.middle, TensorUse::attention_sum);
  w.emit_between(KernelOp::add_residual, {summed, input}, {kept.middle}, w.layer_weights({"proj.bias"}));
  feed_forward(w, kept, gives_out);
  return kept;
}

TensorId layer_backward(KernelWriter& w, const KeptLayer& kept, TensorId dout,
                        std::optional<ChunkId> takes_in) {
  const TensorId dmiddle = feed_forward_backward(w, kept, dout);
  return attention_part_backward(w, kept, dmiddle, takes_in);
}

void compute_again(KernelWriter& w, const Recompute& recompute, KeptLayer& kept) {
  w.set_again(true);
  if (recompute.layer) {
    kept = layer_forward(w, kept.input);  // with its collectives, as frameworks do
  } else {
    attention_again(w, recompute, kept);
    feed_forward_again(w, recompute, kept);
  }
  w.set_again(false);
}

}  // namespace motley
