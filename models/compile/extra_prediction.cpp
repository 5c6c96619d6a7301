// A module that predicts one more token (DeepSeek-V3, arXiv:2412.19437, section 2.2). The hidden vector before it and
// the embedding of the token predicted there are normed, projected and added; a layer and a head follow.
#include "models/compile/stage_parts.hpp"

namespace motley {

KeptExtraPrediction extra_prediction_forward(KernelWriter& w, TensorId hidden) {
  KeptExtraPrediction kept;
  const std::int64_t C = w.transformer().hidden, R = w.rows_between();
  kept.hidden = hidden;
  kept.hidden_normed = w.norm_between(hidden, "hidden_norm", kept.hidden_statistics);
  kept.token = embed(w, "token");
  kept.token_normed = w.norm_between(kept.token, "token_norm", kept.token_statistics);
  const TensorId from_hidden = w.activation("from_hidden", {R, C});
  const TensorId from_token = w.activation("from_token", {R, C});
  w.matmul(kept.hidden_normed, from_hidden, w.layer_weights({"from_hidden.weight"}), C, C);
  w.matmul(kept.token_normed, from_token, w.layer_weights({"from_token.weight"}), C, C);
  kept.layer = layer_forward(w, w.sum_of(from_hidden, from_token, "merged", TensorRole::activation));
  kept.head = head_forward(w, kept.layer.output);
  return kept;
}

TensorId extra_prediction_backward(KernelWriter& w, const KeptExtraPrediction& kept,
                                   const Recompute& recompute, std::optional<TensorId> dfurther) {
  const std::int64_t C = w.transformer().hidden, R = w.rows_between();
  const TensorId dout = head_backward(w, kept.head, dfurther);
  KeptLayer layer = kept.layer;
  compute_again(w, recompute, layer);
  const TensorId dmerged = layer_backward(w, layer, dout);
  const TensorId dtoken_normed = w.gradient("token_norm", {R, C});
  const TensorId dhidden_normed = w.gradient("hidden_norm", {R, C});
  w.matmul_gradients(dmerged, dtoken_normed, kept.token_normed, w.layer_weights({"from_token.weight"}), C, C);
  const TensorId dtoken =
      w.norm_between_backward(dtoken_normed, kept.token, kept.token_statistics, "token_norm", "token");
  embed_backward(w, dtoken, "token");
  w.matmul_gradients(dmerged, dhidden_normed, kept.hidden_normed, w.layer_weights({"from_hidden.weight"}), C,
                     C);
  return w.norm_between_backward(dhidden_normed, kept.hidden, kept.hidden_statistics, "hidden_norm",
                                 "hidden");
}

}  // namespace motley
