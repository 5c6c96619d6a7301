// The attention of a layer between its first norm and its projection. Heads are cut over tensor-parallel ranks; keys
// and values are gathered over the ranks that have parts of the same sequences. models/compile/latent.cpp makes the
// heads of latent attention.
#include <algorithm>
#include <cmath>
#include <utility>

#include "models/compile/stage_parts.hpp"

namespace motley {
namespace {

struct Widths {
  std::int64_t N, C, heads, queries, keys, qkv, out;
  explicit Widths(const KernelWriter& w)
      : N(w.N()),
        C(w.transformer().hidden),
        heads(w.transformer().heads / w.tp()),
        queries(w.transformer().heads * w.transformer().head_dim / w.tp()),
        keys(w.transformer().kv_heads * (w.transformer().head_dim + w.transformer().value_dim()) / w.tp()),
        qkv(((w.transformer().heads + w.transformer().kv_heads) * w.transformer().head_dim +
             w.transformer().kv_heads * w.transformer().value_dim()) /
            w.tp()),
        out(w.transformer().heads * w.transformer().value_dim() / w.tp()) {}
};

Ids norm_weights(const KernelWriter& w) { return w.layer_weights({"q_norm.weight", "k_norm.weight"}); }

// Norms all heads together. Ranks that have parts of the heads sum two numbers a row between two kernels.
void normalise_all_heads(KernelWriter& w, KeptAttention& kept) {
  if (w.tp() > 1) {
    w.emit(KernelOp::qk_norm, {*kept.unnormed}, {*kept.qk_statistics});
    w.all_reduce(*kept.qk_statistics);
    w.emit(KernelOp::qk_norm, {*kept.unnormed, *kept.qk_statistics}, {kept.qkv}, norm_weights(w));
  } else {
    w.emit(KernelOp::qk_norm, {*kept.unnormed}, {kept.qkv, *kept.qk_statistics}, norm_weights(w));
  }
}

TensorId normalise_all_heads_backward(KernelWriter& w, const Widths& s, const KeptAttention& kept,
                                      TensorId dqkv) {
  Ids weights = norm_weights(w);
  if (!weights.empty() && w.frozen(weights[0])) weights.clear();
  const TensorId dunnormed = w.gradient("qkv.unnormed", {s.N, s.qkv});
  Ids in = {dqkv, kept.unnormed.value(), kept.qk_statistics.value()};
  if (w.tp() > 1) {
    in.push_back(w.exact_gradient("qk_norm.products", {s.N, 2}));
    w.emit(KernelOp::qk_norm_backward, {in[0], in[1], in[2]}, {in[3]});
    w.all_reduce(in[3]);
  }
  w.emit(KernelOp::qk_norm_backward, in, {dunnormed}, weights);
  return dunnormed;
}

void normalise_heads(KernelWriter& w, const Widths& s, KeptAttention& kept) {
  const std::int64_t heads = (w.transformer().heads + w.transformer().kv_heads) / w.tp();
  const bool together = w.transformer().qk_norm_form == QkNormForm::all_heads;
  kept.unnormed = kept.qkv;
  kept.qkv = w.activation("qkv.normed", {s.N, s.qkv});
  kept.qk_statistics = w.exact("qkv.statistics", {s.N, together ? 2 : heads});
  if (together) return normalise_all_heads(w, kept);
  w.emit(KernelOp::qk_norm, {*kept.unnormed}, {kept.qkv, *kept.qk_statistics}, norm_weights(w));
}

// Where each head is normed by itself, every rank has some of the heads and the whole weights, so the weights'
// gradients are summed before they accumulate. Where all heads are normed together, a rank has its part of the weights.
TensorId normalise_heads_backward(KernelWriter& w, const Widths& s, const KeptAttention& kept,
                                  TensorId dqkv) {
  if (w.transformer().qk_norm_form == QkNormForm::all_heads)
    return normalise_all_heads_backward(w, s, kept, dqkv);
  const Ids both = norm_weights(w);
  const TensorId dunnormed = w.gradient("qkv.unnormed", {s.N, s.qkv});
  if (both.empty()) {
    w.emit(KernelOp::qk_norm_backward, {dqkv, kept.unnormed.value(), kept.qk_statistics.value()},
           {dunnormed});
    return dunnormed;
  }
  const TensorId dweights = w.exact_gradient("qk_norm", {2, w.transformer().head_dim});
  w.emit(KernelOp::qk_norm_backward, {dqkv, kept.unnormed.value(), kept.qk_statistics.value()},
         {dunnormed, dweights}, both);
  if (w.frozen(both[0])) return dunnormed;
  w.all_reduce(dweights);
  w.emit(KernelOp::accumulate, {dweights}, {}, both).n = w.transformer().head_dim;
  return dunnormed;
}

void make_heads(KernelWriter& w, TensorId y, KeptAttention& kept) {
  const Widths s(w);
  kept.qkv = w.activation("qkv", {s.N, s.qkv});
  kept.qkv = w.linear(y, kept.qkv, "qkv", s.qkv, s.C, kept.qkv_narrow);
  if (w.transformer().norms_heads(w.layer())) normalise_heads(w, s, kept);
  if (w.transformer().rotates(w.layer())) {
    const TensorId rotated = w.activation("qkv.rotated", {s.N, s.qkv});
    w.emit(KernelOp::rope, {kept.qkv}, {rotated});
    kept.qkv = rotated;
  }
}

// Mean number of tokens in the document of a token. Assumes: attention over several documents takes the time of as
// many FLOPs over documents of that length.
std::int64_t tokens_seen(const Train& train) {
  return static_cast<std::int64_t>(attention_pairs(train.documents, train.sequence, Sight{})) /
         train.sequence;
}

// Assumes: each rank with a part of a sequence attends to an equal share of the pairs. This is exact without a window
// (models/transformer/sequence_layout.hpp); with a window the rank of the first chunk has fewer, by less than half of
// the window; with several documents in a sequence some ranks have more than others.
void shape_of_attention(const KernelWriter& w, Kernel& kernel, std::int64_t widths) {
  kernel.m = w.B() * w.transformer().heads / w.tp();
  kernel.n = std::min(w.T(), tokens_seen(w.train()));
  kernel.k = w.transformer().head_dim;
  kernel.flops = 2.0 * static_cast<double>(kernel.m) *
                 attention_pairs(w.train().documents, w.train().sequence, w.transformer().sight(w.layer())) /
                 static_cast<double>(w.rank_program().context_parallel) * static_cast<double>(widths);
}

// The backward has five products: the scores again, and the gradients of v, scores, q and k (FlashAttention,
// arXiv:2205.14135). 8 of the 10 count as the model's FLOPs; Program counts all ten as done.
std::int64_t widths_of_backward(const KernelWriter& w) {
  return 3 * w.transformer().head_dim + 2 * w.transformer().value_dim();
}

void shape_of_share(const KernelWriter& w, Kernel& kernel, std::int64_t widths, std::int64_t bytes,
                    double share) {
  shape_of_attention(w, kernel, widths);
  kernel.factor = share;
  kernel.flops *= share;
  kernel.bytes = std::llround(static_cast<double>(bytes) * share);
}

// The sinks of the heads that this rank has. The backward has them for their gradient alone. Assumes: sinks, and caps
// on the scores, take no time beside the products of the fused kernel.
Ids sinks(const KernelWriter& w, KernelOp op) {
  const Ids weight = w.layer_weights({"sinks.weight"});
  return op == KernelOp::attention_backward && !weight.empty() && w.frozen(weight[0]) ? Ids{} : weight;
}

// An attention of which the kernel itself does some share, and kernels that only take time the rest.
class SharedAttention {
 public:
  SharedAttention(KernelWriter& w, KernelOp op, Ids in, Ids out, std::int64_t widths)
      : w_(w), op_(op), in_(std::move(in)), out_(std::move(out)), sinks_(sinks(w, op)), widths_(widths) {
    for (const Ids* ids : {&in_, &out_})
      for (const TensorId id : *ids) bytes_ += w.tensor(id).bytes;
  }
  void itself(double share) { shape_of_share(w_, w_.emit(op_, in_, out_, sinks_), widths_, bytes_, share); }
  void only_time(double share) { shape_of_share(w_, w_.emit(op_, {}, {}), widths_, bytes_, share); }

 private:
  KernelWriter& w_;
  const KernelOp op_;
  const Ids in_, out_, sinks_;
  const std::int64_t widths_;
  std::int64_t bytes_ = 0;
};

// Gathers the keys and values of whole sequences from the ranks' parts: before attention, or beside a share of it
// (Strategy::overlap_context). A ring passes the same bytes on. They are not kept: the backward gathers again.
TensorId gather_keys(KernelWriter& w, TensorId qkv, const char* name) {
  const std::int64_t parts = w.rank_program().context_parallel;
  const TensorId keys = w.activation(name, {parts * w.N(), Widths(w).keys});
  w.emit(KernelOp::place_keys, {qkv}, {keys}).bytes = 2 * w.tensor(keys).bytes / parts;
  w.over_context(KernelOp::all_gather, keys);
  return keys;
}

// All ranks' queries add to this rank's keys and values, so the gradients are summed on the rank of the keys.
// In a ring of R ranks, R-1 of R blocks of keys are attended to while R-1 blocks of keys, and R-1 of gradients, are on
// their way; one is not. So a ring takes R-1 times the longer of computing and moving a block, and one block more.
// Assumes: all blocks take equally long, and the gradients' bytes move beside the second half of them.
TensorId gathered_attention_backward(KernelWriter& w, const Widths& s, const KeptAttention& kept,
                                     TensorId dheads) {
  const TensorId keys = gather_keys(w, kept.qkv, "keys.again");
  const TensorId dq = w.gradient("q", {s.N, s.queries});
  const TensorId dkeys = w.gradient("keys", w.tensor(keys).shape);
  SharedAttention attention(w, KernelOp::attention_backward, {dheads, kept.qkv, kept.heads, kept.lse, keys},
                            {dq, dkeys}, widths_of_backward(w));
  const double last = w.overlaps_context() ? 1.0 / static_cast<double>(w.rank_program().context_parallel) : 1;
  if (last < 1) attention.only_time((1 - last) / 2);
  attention.itself(last);
  w.over_context(KernelOp::reduce_scatter, dkeys);
  if (last < 1) attention.only_time((1 - last) / 2);
  const TensorId dqkv = w.gradient("qkv", {s.N, s.qkv});
  w.emit(KernelOp::take_keys, {dq, dkeys}, {dqkv}).bytes = 2 * w.tensor(dqkv).bytes;
  return dqkv;
}

}  // namespace

void attend(KernelWriter& w, KeptAttention& kept) {
  const Widths s(w);
  kept.heads = w.activation("attention", {s.N, s.out});
  kept.lse = w.keeps_scores() ? w.activation("attention.scores", {w.B(), s.heads, w.T(), w.train().sequence})
                              : w.exact("attention.lse", {w.B(), s.heads, w.T()});
  Ids in = {kept.qkv};
  if (w.rank_program().context_parallel > 1) in.push_back(gather_keys(w, kept.qkv, "keys"));
  // The scores are a product over head_dim, the output is a product over the width of the values.
  SharedAttention attention(w, KernelOp::attention, in, {kept.heads, kept.lse},
                            w.transformer().head_dim + w.transformer().value_dim());
  const double last = w.overlaps_context() ? 1.0 / static_cast<double>(w.rank_program().context_parallel) : 1;
  if (last < 1) attention.only_time(1 - last);
  attention.itself(last);
}

TensorId attention_forward(KernelWriter& w, TensorId y, KeptAttention& kept) {
  const Widths s(w);
  if (w.transformer().latent.used())
    kept.qkv = latent_forward(w, y, kept.latent);
  else
    make_heads(w, y, kept);
  attend(w, kept);
  return w.linear(kept.heads, w.activation("proj", {s.N, s.C}), "proj", s.C, s.out, kept.proj_narrow);
}

TensorId attend_backward(KernelWriter& w, const KeptAttention& kept, TensorId dprojected) {
  const Widths s(w);
  const TensorId dheads =
      w.linear_gradients(dprojected, "attention", kept.heads, "proj", s.C, s.out, kept.proj_narrow);
  if (w.rank_program().context_parallel > 1) return gathered_attention_backward(w, s, kept, dheads);
  const TensorId dqkv = w.gradient("qkv", {s.N, s.qkv});
  shape_of_attention(w,
                     w.emit(KernelOp::attention_backward, {dheads, kept.qkv, kept.heads, kept.lse}, {dqkv},
                            sinks(w, KernelOp::attention_backward)),
                     widths_of_backward(w));
  return dqkv;
}

TensorId heads_backward(KernelWriter& w, std::optional<TensorId> y, const KeptAttention& kept,
                        TensorId dqkv) {
  if (w.transformer().latent.used()) return latent_backward(w, y, kept.latent, dqkv);
  const Widths s(w);
  if (w.transformer().rotates(w.layer())) {
    const TensorId unrotated = w.gradient("qkv.unrotated", {s.N, s.qkv});
    w.emit(KernelOp::rope_backward, {dqkv}, {unrotated});
    dqkv = unrotated;
  }
  if (w.transformer().norms_heads(w.layer())) dqkv = normalise_heads_backward(w, s, kept, dqkv);
  const TensorId dy = w.linear_gradients(dqkv, "norm1", y, "qkv", s.qkv, s.C, kept.qkv_narrow);
  return w.sum_rows(dy, "norm1.sum.gradient", TensorRole::activation_gradient);
}

}  // namespace motley
