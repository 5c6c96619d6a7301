// The parts of a stage. Each has a forward, which returns what it keeps, and a backward, which uses that. `x` and `y`
// are activations and `dy` is the gradient of y; all have N rows and C columns, the hidden width, unless said
// otherwise. "Rows of this rank" are KernelWriter::rows_between(). A part's `y` may be none in a backward if no
// weight that reads it is trained. Read next: models/compile/kernels.cpp, which combines the parts.
#pragma once

#include <optional>
#include <string>

#include "models/compile/kernel_writer.hpp"

namespace motley {

// embed() makes the embedding of the current layer's input tokens, rows of this rank; embed_backward() adds its
// gradient `dx` to those of the tables (embedding.cpp).
TensorId embed(KernelWriter& writer, const std::string& name);
void embed_backward(KernelWriter& writer, TensorId dx, const std::string& name);

// What latent attention keeps between y and its heads (latent.cpp).
struct KeptLatent {
  std::optional<TensorId> q_latent, q_normed, q_statistics;  // none: queries are not projected down
  TensorId kv_latent, kv_normed, kv_statistics;
};
// Returns qkv, with keys and queries rotated by position.
TensorId latent_forward(KernelWriter& writer, TensorId y, KeptLatent& kept);
// Makes what `recompute` names again, and qkv if it names `latent`; `y` is needed where queries have no latent.
void latent_again(KernelWriter& writer, const Recompute& recompute, std::optional<TensorId> y,
                  KeptLatent& kept, TensorId& qkv);
// Returns the gradient of y, summed over tensor-parallel ranks, rows of this rank.
TensorId latent_backward(KernelWriter& writer, std::optional<TensorId> y, const KeptLatent& kept,
                         TensorId dqkv);

// What attention keeps (attention.cpp).
struct KeptAttention {
  TensorId qkv, heads, lse;  // heads: the output of attention itself, before its projection
  std::optional<TensorId> unnormed, qk_statistics;  // with qk_norm
  std::optional<TensorId> qkv_narrow, proj_narrow;  // with adapters
  KeptLatent latent;                                // with latent attention
};
// Returns the projection of the heads, still to be summed over tensor-parallel ranks.
TensorId attention_forward(KernelWriter& writer, TensorId y, KeptAttention& kept);
// Makes kept.heads and kept.lse from kept.qkv: a part of the forward that a backward may repeat.
void attend(KernelWriter& writer, KeptAttention& kept);
// attend_backward() returns the gradient of qkv; heads_backward() takes it and returns the gradient of y, summed over
// tensor-parallel ranks, rows of this rank.
TensorId attend_backward(KernelWriter& writer, const KeptAttention& kept, TensorId dprojected);
TensorId heads_backward(KernelWriter& writer, std::optional<TensorId> y, const KeptAttention& kept,
                        TensorId dqkv);

// What a dense feed-forward part keeps (dense.cpp).
struct KeptDense {
  TensorId inner, activated;
  std::optional<TensorId> inner_narrow, fc2_narrow;  // with adapters
};
// Name of the first linear layer: "fc1", or "gate_up" if the part is gated.
const char* inner_name(const Transformer& transformer);
// Make only kept.inner, or only kept.activated: parts of the forward that a backward may repeat.
void dense_inner(KernelWriter& writer, TensorId y, KeptDense& kept);
void dense_activation(KernelWriter& writer, KeptDense& kept);
// Returns the part's output, still to be summed over tensor-parallel ranks.
TensorId dense_forward(KernelWriter& writer, TensorId y, KeptDense& kept);
// Returns the gradient of y, summed over tensor-parallel ranks, rows of this rank. `dout` is the gradient of that sum.
TensorId dense_backward(KernelWriter& writer, std::optional<TensorId> y, const KeptDense& kept,
                        TensorId dout);

// What the routed experts of a layer keep for their backward (experts.cpp).
struct KeptExperts {
  TensorId logits, weights, taken, rows, counts;
  std::optional<TensorId> sent_counts;  // with experts divided over ranks
  TensorId copies, inner, activated, out;
  TensorId row_weights;  // with ExpertWeights::activation: one for each row of `inner`
  TensorId shared_inner, shared_activated, shared_out;  // with a shared expert
  std::optional<TensorId> shared_gate;                  // with a gated shared expert
};
// Returns the sum of a token's experts, still to be summed over tensor-parallel ranks.
TensorId experts_forward(KernelWriter& writer, TensorId y, KeptExperts& kept);
// Makes what `recompute` names again; `y` is needed for the router.
void experts_again(KernelWriter& writer, const Recompute& recompute, std::optional<TensorId> y,
                   KeptExperts& kept);
// Returns the gradient of y, summed over tensor-parallel ranks, rows of this rank. `dout` is the gradient of that sum.
TensorId experts_backward(KernelWriter& writer, std::optional<TensorId> y, const KeptExperts& kept,
                          TensorId dout);

// What a layer's forward keeps for its backward (layer.cpp). A layer has experts or a dense feed-forward part.
struct KeptLayer {
  TensorId input, y1, statistics1;
  KeptAttention attention;
  TensorId middle, y2, statistics2;
  // Outputs of attention and of the feed-forward part, before the norms over them; none: outputs are not normed.
  std::optional<TensorId> attended, contracted;
  TensorId attended_statistics, contracted_statistics;
  KeptDense dense;
  KeptExperts experts;
  TensorId output;
};
// Input and output are rows of this rank. `gives_out` is the chunk that sends the output to another rank; none: the
// output stays on this rank.
KeptLayer layer_forward(KernelWriter& writer, TensorId input, std::optional<ChunkId> gives_out = {});
// Writes the part of the forward that a backward repeats, and puts its tensors into `kept`.
void compute_again(KernelWriter& writer, const Recompute& recompute, KeptLayer& kept);
// Returns the gradient of the input. This and `dout`, the gradient of the output, are rows of this rank. `takes_in`
// is the chunk that received the input from another rank; none: this rank made the input.
TensorId layer_backward(KernelWriter& writer, const KeptLayer& kept, TensorId dout,
                        std::optional<ChunkId> takes_in = {});

// What a head and its loss keep (head.cpp). The last layer has a head, and so has each module that predicts a further
// token.
struct KeptHead {
  TensorId input, y, statistics, logits, maximum, sums;
};
KeptHead head_forward(KernelWriter& writer, TensorId x);
// Returns the gradient of x. `dfurther` is the gradient that later modules add to it; none: there are no such
// modules.
TensorId head_backward(KernelWriter& writer, const KeptHead& kept, std::optional<TensorId> dfurther);

// What a module that predicts one more token keeps (extra_prediction.cpp; arXiv:2412.19437, section 2.2, whose h is
// the hidden vector before the module).
struct KeptExtraPrediction {
  TensorId hidden, hidden_normed, hidden_statistics;
  TensorId token, token_normed, token_statistics;
  KeptLayer layer;
  KeptHead head;
};
// Takes the hidden vector, and looks up the embedding of the token that was to be predicted from it.
KeptExtraPrediction extra_prediction_forward(KernelWriter& writer, TensorId hidden);
// Returns the gradient of that hidden vector. `recompute` says what the module's layer repeats; `dfurther` is as for
// head_backward().
TensorId extra_prediction_backward(KernelWriter& writer, const KeptExtraPrediction& kept,
                                   const Recompute& recompute, std::optional<TensorId> dfurther);

}  // namespace motley
