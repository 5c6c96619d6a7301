// The head and its loss: the last norm, the logits and a cross-entropy for which no rank needs the whole vocabulary,
// as in Megatron-LM (arXiv:1909.08053). The last layer has a head, and so has each module that predicts a further
// token.
#include "models/compile/stage_parts.hpp"

namespace motley {
namespace {

std::int64_t vocabulary_rows(const KernelWriter& w) {
  return (w.transformer().vocabulary + w.tp() - 1) / w.tp();
}

Ids head_weight(const KernelWriter& w) {
  return w.weights({w.transformer().tied_embeddings ? "embedding.token.weight" : "head.weight"});
}

// Number of tokens beyond the next that are predicted: 0 for the model's own head.
std::int64_t ahead(const KernelWriter& w) { return w.transformer().ahead(w.layer()); }

}  // namespace

KeptHead head_forward(KernelWriter& w, TensorId x) {
  KeptHead kept;
  kept.input = x;
  kept.y = w.norm_between(x, "norm", kept.statistics);
  const TensorId y = w.all_rows(kept.y, "norm.rows");
  kept.logits = w.activation("logits", {w.N(), vocabulary_rows(w)});
  w.matmul(y, kept.logits, head_weight(w), vocabulary_rows(w), w.transformer().hidden, false);
  if (const double cap = w.transformer().logit_softcap; cap > 0) {
    const TensorId capped = w.activation("logits.capped", {w.N(), vocabulary_rows(w)});
    w.emit(KernelOp::softcap, {kept.logits}, {capped}).factor = cap;
    kept.logits = capped;
  }
  if (ahead(w) == 0) w.set_use(kept.logits, TensorUse::logits);
  kept.maximum = w.exact("logits.maximum", {w.N()});
  w.emit(KernelOp::logits_maximum, {kept.logits}, {kept.maximum});
  w.all_reduce(kept.maximum, ReduceOp::maximum);
  kept.sums = w.exact("logits.sums", {w.N(), 2});
  w.emit(KernelOp::logits_sum, {kept.logits, kept.maximum}, {kept.sums}).ahead = ahead(w);
  w.all_reduce(kept.sums);
  const TensorId losses = w.exact("losses", {w.N()});
  w.emit(KernelOp::loss, {kept.maximum, kept.sums}, {losses}).ahead = ahead(w);
  return kept;
}

TensorId head_backward(KernelWriter& w, const KeptHead& kept, std::optional<TensorId> dfurther) {
  const Transformer& transformer = w.transformer();
  TensorId dlogits = w.gradient("logits", {w.N(), vocabulary_rows(w)});
  if (ahead(w) == 0) w.set_use(dlogits, TensorUse::logits);
  Kernel& loss = w.emit(KernelOp::loss_backward, {kept.logits, kept.maximum, kept.sums}, {dlogits});
  loss.ahead = ahead(w);
  if (ahead(w) > 0)
    loss.factor = transformer.extra_prediction_weight / static_cast<double>(transformer.extra_predictions);
  if (const double cap = transformer.logit_softcap; cap > 0) {
    const TensorId duncapped = w.gradient("logits.uncapped", {w.N(), vocabulary_rows(w)});
    w.emit(KernelOp::softcap_backward, {dlogits, kept.logits}, {duncapped}).factor = cap;
    dlogits = duncapped;
  }
  const TensorId dy = w.gradient("norm", {w.N(), transformer.hidden});
  std::optional<TensorId> y;
  if (!w.frozen(head_weight(w)[0])) y = w.all_rows(kept.y, "norm.rows.again");
  w.matmul_gradients(dlogits, dy, y, head_weight(w), vocabulary_rows(w), transformer.hidden, false);
  const TensorId summed = w.sum_rows(dy, "norm.sum.gradient", TensorRole::activation_gradient);
  return w.norm_between_backward(summed, kept.input, kept.statistics, "norm", "input", dfurther);
}

}  // namespace motley
