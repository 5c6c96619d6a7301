// Latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1) from a layer's first norm to its heads. Tensor
// parallelism cuts the heads, and so the up-projections; every rank has the whole down-projections and their norms.
// As usual in training, keys and values are made for every head: the form that caches only the latent is for
// decoding.
#include "models/compile/stage_parts.hpp"

namespace motley {
namespace {

struct LatentWidths {
  std::int64_t N, C, heads, D, rope, value, q_rank, kv_rank;
  explicit LatentWidths(const KernelWriter& w)
      : N(w.N()),
        C(w.transformer().hidden),
        heads(w.transformer().heads / w.tp()),
        D(w.transformer().head_dim),
        rope(w.transformer().latent.rope_dim),
        value(w.transformer().latent.value_dim),
        q_rank(w.transformer().latent.q_rank),
        kv_rank(w.transformer().latent.kv_rank) {}
  std::int64_t q() const { return heads * D; }
  std::int64_t kv() const { return heads * (D - rope + value); }
  std::int64_t down() const { return kv_rank + rope; }
};

void norm_queries(KernelWriter& w, const LatentWidths& s, KeptLatent& kept) {
  kept.q_normed = w.activation("q.normed", {s.N, s.q_rank});
  kept.q_statistics = w.exact("q.statistics", {s.N, 1});
  w.norm(kept.q_latent.value(), *kept.q_normed, *kept.q_statistics, w.layer_weights({"q_down_norm.weight"}),
         s.q_rank);
}

void norm_keys(KernelWriter& w, const LatentWidths& s, KeptLatent& kept) {
  kept.kv_normed = w.activation("kv.normed", {s.N, s.kv_rank});
  kept.kv_statistics = w.exact("kv.statistics", {s.N, 1});
  w.norm(kept.kv_latent, kept.kv_normed, kept.kv_statistics, w.layer_weights({"kv_down_norm.weight"}),
         s.kv_rank);
}

// The queries of every head, from their latents, or from y where they have none.
TensorId queries(KernelWriter& w, const LatentWidths& s, std::optional<TensorId> y, const KeptLatent& kept) {
  const TensorId q = w.activation("q", {s.N, s.q()});
  if (s.q_rank == 0)
    w.matmul(y.value(), q, w.layer_weights({"q.weight"}), s.q(), s.C);
  else
    w.matmul(kept.q_normed.value(), q, w.layer_weights({"q_up.weight"}), s.q(), s.q_rank);
  return q;
}

TensorId keys(KernelWriter& w, const LatentWidths& s, const KeptLatent& kept) {
  const TensorId kv = w.activation("kv", {s.N, s.kv()});
  w.matmul(kept.kv_normed, kv, w.layer_weights({"kv_up.weight"}), s.kv(), s.kv_rank);
  return kv;
}

TensorId heads_of(KernelWriter& w, const LatentWidths& s, TensorId q, TensorId kv, const KeptLatent& kept) {
  const TensorId qkv = w.activation("qkv", {s.N, s.heads * (2 * s.D + s.value)});
  w.emit(KernelOp::latent_heads, {q, kv, kept.kv_latent}, {qkv});
  return qkv;
}

TensorId queries_backward(KernelWriter& w, const LatentWidths& s, std::optional<TensorId> y,
                          const KeptLatent& kept, TensorId dq) {
  const TensorId dy = w.gradient("q.input", {s.N, s.C});
  if (s.q_rank == 0) {
    w.matmul_gradients(dq, dy, y, w.layer_weights({"q.weight"}), s.q(), s.C);
    w.all_reduce(dy);
    return dy;
  }
  const TensorId dnormed = w.gradient("q.normed", {s.N, s.q_rank});
  w.matmul_gradients(dq, dnormed, kept.q_normed, w.layer_weights({"q_up.weight"}), s.q(), s.q_rank);
  w.all_reduce(dnormed);
  const TensorId dlatent = w.gradient("q.latent", {s.N, s.q_rank});
  w.norm_backward({dnormed, kept.q_latent.value(), kept.q_statistics.value()}, dlatent,
                  w.layer_weights({"q_down_norm.weight"}), s.q_rank);
  w.matmul_gradients(dlatent, dy, y, w.layer_weights({"q_down.weight"}), s.q_rank, s.C);
  return dy;
}

}  // namespace

TensorId latent_forward(KernelWriter& w, TensorId y, KeptLatent& kept) {
  const LatentWidths s(w);
  if (s.q_rank > 0) {
    kept.q_latent = w.activation("q.latent", {s.N, s.q_rank});
    w.matmul(y, *kept.q_latent, w.layer_weights({"q_down.weight"}), s.q_rank, s.C);
    norm_queries(w, s, kept);
  }
  const TensorId q = queries(w, s, y, kept);
  kept.kv_latent = w.activation("kv.latent", {s.N, s.down()});
  w.matmul(y, kept.kv_latent, w.layer_weights({"kv_down.weight"}), s.down(), s.C);
  norm_keys(w, s, kept);
  const TensorId kv = keys(w, s, kept);
  return heads_of(w, s, q, kv, kept);
}

void latent_again(KernelWriter& w, const Recompute& recompute, std::optional<TensorId> y, KeptLatent& kept,
                  TensorId& qkv) {
  const LatentWidths s(w);
  if (recompute.has(Module::norms)) {
    if (s.q_rank > 0) norm_queries(w, s, kept);
    norm_keys(w, s, kept);
  }
  if (!recompute.has(Module::latent)) return;
  const TensorId q = queries(w, s, y, kept);
  const TensorId kv = keys(w, s, kept);
  qkv = heads_of(w, s, q, kv, kept);
}

TensorId latent_backward(KernelWriter& w, std::optional<TensorId> y, const KeptLatent& kept, TensorId dqkv) {
  const LatentWidths s(w);
  const TensorId dq = w.gradient("q", {s.N, s.q()}), dkv = w.gradient("kv", {s.N, s.kv()});
  const TensorId dshared = w.gradient("kv.shared", {s.N, s.down()});
  w.emit(KernelOp::latent_heads_backward, {dqkv}, {dq, dkv, dshared});
  w.all_reduce(dshared);
  const TensorId dy_q = queries_backward(w, s, y, kept, dq);
  const TensorId dnormed = w.gradient("kv.normed", {s.N, s.kv_rank});
  w.matmul_gradients(dkv, dnormed, kept.kv_normed, w.layer_weights({"kv_up.weight"}), s.kv(), s.kv_rank);
  w.all_reduce(dnormed);
  const TensorId dlatent = w.gradient("kv.latent", {s.N, s.down()});
  w.norm_backward({dnormed, kept.kv_latent, kept.kv_statistics, dshared}, dlatent,
                  w.layer_weights({"kv_down_norm.weight"}), s.kv_rank);
  const TensorId dy_kv = w.gradient("kv.input", {s.N, s.C});
  w.matmul_gradients(dlatent, dy_kv, y, w.layer_weights({"kv_down.weight"}), s.down(), s.C);
  const TensorId dy = w.gradient("norm1", {s.N, s.C});
  w.emit(KernelOp::add_residual, {dy_q, dy_kv}, {dy});
  return w.own_rows(dy, "norm1.sum.gradient", TensorRole::activation_gradient);
}

}  // namespace motley
