// Pass "kernels": the tensors a stage holds and the kernels of its chunks' forward and backward, for one micro-batch.
// Where one stage holds two virtual stages in a row, the first hands its output over: no tensor of its own leaves.
// Tensor parallelism as in Megatron-LM (arXiv:1909.08053): qkv and fc1 cut by rows, proj and fc2 by columns, one
// all-reduce after each of the latter forward and before each of the former's input backward; vocabulary-parallel
// embedding and cross-entropy. With sequence parallelism (arXiv:2205.05198) what stands between cut matmuls has its
// rows divided over the same ranks: an all-gather before the one, a reduce-scatter after the other, and gathered inputs
// are not kept but gathered again for the backward.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "models/compile_passes.hpp"
#include "models/kernel_writer.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

// What a layer's forward leaves for its backward.
struct Kept {
  int input = -1, y1 = -1, statistics1 = -1, qkv = -1, attention = -1, lse = -1, middle = -1, y2 = -1,
      statistics2 = -1, inner = -1, activated = -1, output = -1;
  int unnormed = -1, qk_statistics = -1;                                      // qk_norm
  int qkv_narrow = -1, proj_narrow = -1, inner_narrow = -1, fc2_narrow = -1;  // adapters
  KeptLatent latent;
  KeptExperts experts;
};
struct KeptHead {
  int input = -1, y = -1, statistics = -1, logits = -1, maximum = -1, sums = -1;
};
// A module that predicts one more token (arXiv:2412.19437, section 2.2, whose h is the hidden vector before it).
struct KeptExtra {
  int hidden = -1, hidden_normed = -1, hidden_statistics = -1;
  int token = -1, token_normed = -1, token_statistics = -1;
  Kept layer;
  KeptHead head;
};

const Stage& stage_of(const Job& job, const ProgramClass& of_class) {
  const auto& stages = job.strategy.templates[static_cast<std::size_t>(of_class.pipeline)].stages;
  return stages[static_cast<std::size_t>(of_class.stage)];
}

class StageBuilder : private KernelWriter {
 public:
  StageBuilder(const Job& job, ProgramClass& of_class)
      : KernelWriter(job, of_class),
        tied_(job.transformer.tied_embeddings),
        recompute_(stage_of(job, of_class).recompute.value_or(job.strategy.recompute)),
        recompute_layers_(stage_of(job, of_class).recompute_layers.value_or(job.transformer.layers)),
        keeps_scores_(std::any_of(job.cluster.groups.begin(), job.cluster.groups.end(),
                                  [](const NodeGroup& g) { return g.chip.unfused_attention.value > 0; })),
        R_(rows_between()) {}

  void build() {
    add_parameters();
    const int chunks = static_cast<int>(class_.chunks.size());
    // In the order in which a micro-batch passes them: what is handed over is there when it is asked for.
    for (chunk_ = 0; chunk_ < chunks; ++chunk_) forward();
    for (chunk_ = chunks - 1; chunk_ >= 0; --chunk_) backward();
  }

 private:
  const bool tied_;
  const Recompute recompute_;
  const std::int64_t recompute_layers_;  // of each chunk
  // Attention that is not fused keeps the softmax of its scores, whole, where a fused one keeps a number a row.
  const bool keeps_scores_;
  const std::int64_t R_;  // rows between cut matmuls
  std::map<int, Kept> kept_;
  KeptHead head_;
  std::vector<KeptExtra> extra_;
  std::map<int, int> outputs_, input_gradients_;  // by chunk: what is handed over
  int chunk_ = 0;

  std::int64_t qkv_rows() const {
    return ((transformer_.heads + transformer_.kv_heads) * transformer_.head_dim +
            transformer_.kv_heads * transformer_.value_dim()) /
           tp_;
  }
  std::int64_t attention_width() const { return transformer_.heads * transformer_.value_dim() / tp_; }
  std::int64_t inner_rows() const { return (transformer_.gated() ? 2 : 1) * transformer_.ffn / tp_; }
  const char* inner_name() const { return transformer_.gated() ? "gate_up" : "fc1"; }
  std::int64_t statistics_width() const { return transformer_.family == Family::gpt2 ? 2 : 1; }
  std::int64_t vocabulary_rows() const { return (transformer_.vocabulary + tp_ - 1) / tp_; }

  const Chunk& chunk() const { return class_.chunks[static_cast<std::size_t>(chunk_)]; }
  bool begins() const { return class_.first_stage && chunk_ == 0; }  // holds the embedding
  bool ends() const {                                                // holds the head
    return class_.last_stage && chunk_ + 1 == static_cast<int>(class_.chunks.size());
  }
  int previous_here() const { return chunk_at(class_, chunk().virtual_stage - 1); }
  int next_here() const { return chunk_at(class_, chunk().virtual_stage + 1); }
  bool receives_input() const { return !begins() && previous_here() < 0; }
  bool sends_output() const { return !ends() && next_here() < 0; }

  Ids head_weight() const { return weights({tied_ ? "embedding.token.weight" : "head.weight"}); }

  bool holds(const Parameter& parameter) const {
    if (parameter.layer == -1) {
      const bool used_twice = tied_ || transformer_.trained_extra() > 0;
      return class_.first_stage ||
             (used_twice && class_.last_stage && parameter.name == "embedding.token.weight");
    }
    if (parameter.layer >= transformer_.layers) return class_.last_stage;
    for (const Chunk& chunk : class_.chunks)
      if (parameter.layer >= chunk.first_layer && parameter.layer < chunk.last_layer) return true;
    return false;
  }

  void add_parameters() {
    const auto all = parameters(transformer_);
    std::vector<int> held;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (holds(all[i])) held.push_back(static_cast<int>(i));
    add_parameter_tensors(all, held);
  }

  Kept layer_forward(int input) {
    Kept kept;
    const std::int64_t C = transformer_.hidden;
    kept.input = input;
    kept.y1 = norm_between(input, "norm1", kept.statistics1);
    const int y1 = all_rows(kept.y1, "norm1.rows");
    if (transformer_.latent.used())
      kept.qkv = latent_forward(*this, y1, kept.latent);
    else
      make_heads(y1, kept);
    attend(kept);
    const int projected =
        linear(kept.attention, activation("proj", {N_, C}), "proj", C, attention_width(), kept.proj_narrow);
    const int summed = sum_rows(projected, "proj.sum");
    kept.middle = activation("middle", {R_, C});
    emit_between(KernelOp::add_residual, {summed, input}, {kept.middle}, layer_weights({"proj.bias"}));
    feed_forward(kept);
    return kept;
  }
  void make_heads(int y1, Kept& kept) {
    kept.qkv = activation("qkv", {N_, qkv_rows()});
    kept.qkv = linear(y1, kept.qkv, "qkv", qkv_rows(), transformer_.hidden, kept.qkv_narrow);
    if (transformer_.qk_norm) normalise_heads(kept);
    if (transformer_.family == Family::llama) {
      const int rotated = activation("qkv.rotated", {N_, qkv_rows()});
      emit(KernelOp::rope, {kept.qkv}, {rotated});
      kept.qkv = rotated;
    }
  }
  void normalise_heads(Kept& kept) {
    const std::int64_t heads = (transformer_.heads + transformer_.kv_heads) / tp_;
    kept.unnormed = kept.qkv;
    kept.qkv = activation("qkv.normed", {N_, qkv_rows()});
    kept.qk_statistics = exact("qkv.statistics", {N_, heads});
    emit(KernelOp::qk_norm, {kept.unnormed}, {kept.qkv, kept.qk_statistics},
         layer_weights({"q_norm.weight", "k_norm.weight"}));
  }
  // Every rank has some of the heads, all have the weights: their gradients are summed before they accumulate.
  int normalise_heads_backward(const Kept& kept, int dqkv) {
    const Ids both = layer_weights({"q_norm.weight", "k_norm.weight"});
    const int dunnormed = gradient("qkv.unnormed", {N_, qkv_rows()});
    const int dweights = exact_gradient("qk_norm", {2, transformer_.head_dim});
    emit(KernelOp::qk_norm_backward, {dqkv, kept.unnormed, kept.qk_statistics}, {dunnormed, dweights}, both);
    if (frozen(both[0])) return dunnormed;
    all_reduce(dweights);
    emit(KernelOp::accumulate, {dweights}, {}, both).n = transformer_.head_dim;
    return dunnormed;
  }
  void attend(Kept& kept) {
    const std::int64_t heads = transformer_.heads / tp_;
    kept.attention = activation("attention", {N_, attention_width()});
    kept.lse = keeps_scores_ ? activation("attention.scores", {B_, heads, T_, sequence_})
                             : exact("attention.lse", {B_, heads, T_});
    Ids in = {kept.qkv};
    if (class_.context_parallel > 1) in.push_back(gather_keys(kept.qkv, "keys"));
    // Products: over head_dim the scores, over the values' width the output.
    shape_of_attention(emit(KernelOp::attention, in, {kept.attention, kept.lse}),
                       transformer_.head_dim + transformer_.value_dim());
  }
  std::int64_t key_columns() const {
    return transformer_.kv_heads * (transformer_.head_dim + transformer_.value_dim()) / tp_;
  }
  // Keys and values of whole sequences, from this rank's part. Llama 3 gathers them so (arXiv:2407.21783, section
  // 3.3.2); ring attention (arXiv:2310.01889) passes the same bytes on. They are not kept: the backward gathers again.
  int gather_keys(int qkv, const char* name) {
    const int keys = activation(name, {class_.context_parallel * N_, key_columns()});
    emit(KernelOp::place_keys, {qkv}, {keys}).bytes = 2 * tensor(keys).bytes / class_.context_parallel;
    over_context(KernelOp::all_gather, keys);
    return keys;
  }
  // What all ranks' queries add to this rank's keys and values.
  int gathered_attention_backward(const Kept& kept, int dattention) {
    const int keys = gather_keys(kept.qkv, "keys.again");
    const int dq = gradient("q", {N_, transformer_.heads * transformer_.head_dim / tp_});
    const int dkeys = gradient("keys", tensor(keys).shape);
    shape_of_attention_backward(emit(KernelOp::attention_backward,
                                     {dattention, kept.qkv, kept.attention, kept.lse, keys}, {dq, dkeys}));
    over_context(KernelOp::reduce_scatter, dkeys);
    const int dqkv = gradient("qkv", {N_, qkv_rows()});
    emit(KernelOp::take_keys, {dq, dkeys}, {dqkv}).bytes = 2 * tensor(dqkv).bytes;
    return dqkv;
  }
  int attention_backward(const Kept& kept, int dattention) {
    if (class_.context_parallel > 1) return gathered_attention_backward(kept, dattention);
    const int dqkv = gradient("qkv", {N_, qkv_rows()});
    shape_of_attention_backward(
        emit(KernelOp::attention_backward, {dattention, kept.qkv, kept.attention, kept.lse}, {dqkv}));
    return dqkv;
  }
  // Five products: the scores again, and the gradients of v, scores, q and k (FlashAttention, arXiv:2205.14135).
  // 8 of the 10 are the model's; Program counts all ten as done.
  void shape_of_attention_backward(Kernel& kernel) {
    shape_of_attention(kernel, 3 * transformer_.head_dim + 2 * transformer_.value_dim());
  }
  // Mean over the tokens, of the documents that they stand in. Assumes: attention over several documents takes the
  // time of as many FLOPs over documents of that length.
  std::int64_t tokens_seen() const {
    return static_cast<std::int64_t>(attention_pairs(train_.documents, sequence_, 0)) / sequence_;
  }
  // Assumes: of a sequence cut over several ranks each attends to an equal share of the pairs: exact without a window
  // (models/sequence_layout.hpp), with one the rank of the first chunk has fewer, by less than the window's half; with
  // several documents in a sequence, some ranks have more than others.
  void shape_of_attention(Kernel& kernel, std::int64_t widths) {
    kernel.m = B_ * transformer_.heads / tp_;
    kernel.n = std::min(T_, tokens_seen());
    kernel.k = transformer_.head_dim;
    kernel.flops = 2.0 * static_cast<double>(kernel.m) *
                   attention_pairs(train_.documents, sequence_, transformer_.window(layer())) /
                   static_cast<double>(class_.context_parallel) * static_cast<double>(widths);
  }
  void feed_forward(Kept& kept) {
    const std::int64_t C = transformer_.hidden;
    kept.y2 = norm_between(kept.middle, "norm2", kept.statistics2);
    const int y2 = all_rows(kept.y2, "norm2.rows");
    const int contracted =
        transformer_.has_experts(layer()) ? experts_forward(*this, y2, kept.experts) : dense(y2, kept);
    const int summed = sum_rows(contracted, "fc2.sum");
    const bool leaves = !again() && layer() + 1 == chunk().last_layer && sends_output();
    kept.output = leaves ? boundary("output", TensorRole::activation) : activation("output", {R_, C});
    emit_between(KernelOp::add_residual, {summed, kept.middle}, {kept.output}, layer_weights({"fc2.bias"}));
  }

  int dense(int y2, Kept& kept) {
    const std::int64_t C = transformer_.hidden;
    kept.inner =
        linear(y2, activation("inner", {N_, inner_rows()}), inner_name(), inner_rows(), C, kept.inner_narrow);
    kept.activated = activation("activated", {N_, transformer_.ffn / tp_});
    emit(KernelOp::activation, {kept.inner}, {kept.activated});
    return linear(kept.activated, activation("fc2", {N_, C}), "fc2", C, transformer_.ffn / tp_,
                  kept.fc2_narrow);
  }

  // The embedding or the head alone: what leaves is no layer's.
  void leave_as(int id, const char* what) {
    class_.tensors[static_cast<std::size_t>(id)].name = boundary_name(class_, chunk_, what);
  }
  bool has_layers() const { return chunk().last_layer > chunk().first_layer; }

  // A tensor that another rank sends or is sent.
  int boundary(const char* what, TensorRole role) {
    return add_tensor(boundary_name(class_, chunk_, what), role, format_, {R_, transformer_.hidden});
  }

  void add_block(Pass pass) {
    set_block(static_cast<int>(class_.blocks.size()));
    class_.blocks.push_back({block_name(class_, pass, chunk_), pass, chunk_, {}});
  }

  void forward() {
    add_block(Pass::forward);
    int x = -1;
    if (begins()) {
      set_layer(-1);
      x = embed("output");
    } else {
      x = receives_input() ? boundary("input", TensorRole::activation) : outputs_.at(previous_here());
    }
    for (auto i = static_cast<int>(chunk().first_layer); i < chunk().last_layer; ++i) {
      set_layer(i);
      kept_[i] = layer_forward(x);
      x = kept_[i].output;
    }
    outputs_[chunk_] = x;
    if (begins() && !has_layers() && sends_output()) leave_as(x, "output");
    if (!ends()) return;
    set_layer(transformer_.layers);
    head_ = head_forward(x);
    for (std::int64_t k = 0; k < transformer_.trained_extra(); ++k) {
      set_layer(transformer_.layers + 1 + k);
      extra_.push_back(extra_forward(x));
      x = extra_.back().layer.output;
    }
  }
  // Assumes: a look-up reads and writes one row a token, not the table.
  int embed(const std::string& name) {
    const int x = activation(name, {N_, transformer_.hidden});
    Kernel& kernel =
        emit(KernelOp::embed, {}, {x}, weights({"embedding.token.weight", "embedding.position.weight"}));
    kernel.bytes = 2 * tensor(x).bytes;
    kernel.ahead = ahead();
    return sum_rows(x, name + ".rows");
  }
  void embed_backward(int dx, const std::string& name) {
    dx = all_rows(dx, name + ".rows.gradient", TensorRole::activation_gradient);
    Kernel& kernel = emit(KernelOp::embed_backward, {dx}, {},
                          weights({"embedding.token.weight", "embedding.position.weight"}));
    kernel.bytes = 3 * tensor(dx).bytes;
    kernel.ahead = ahead();
  }
  std::int64_t ahead() const { return transformer_.ahead(layer()); }
  // Of the last layer's output, and of each further module's.
  KeptHead head_forward(int x) {
    KeptHead kept;
    const std::int64_t C = transformer_.hidden;
    kept.input = x;
    kept.y = norm_between(x, "norm", kept.statistics);
    const int y = all_rows(kept.y, "norm.rows");
    kept.logits = activation("logits", {N_, vocabulary_rows()});
    matmul(y, kept.logits, head_weight(), vocabulary_rows(), C, false);
    kept.maximum = exact("logits.maximum", {N_});
    emit(KernelOp::logits_maximum, {kept.logits}, {kept.maximum});
    all_reduce(kept.maximum, ReduceOp::maximum);
    kept.sums = exact("logits.sums", {N_, 2});
    emit(KernelOp::logits_sum, {kept.logits, kept.maximum}, {kept.sums}).ahead = ahead();
    all_reduce(kept.sums);
    emit(KernelOp::loss, {kept.maximum, kept.sums}, {exact("losses", {N_})}).ahead = ahead();
    return kept;
  }
  // `dfurther`: what the modules after it add to the gradient of the same vector; -1: there are none.
  int head_backward(const KeptHead& kept, int dfurther) {
    const int dlogits = gradient("logits", {N_, vocabulary_rows()});
    Kernel& loss = emit(KernelOp::loss_backward, {kept.logits, kept.maximum, kept.sums}, {dlogits});
    loss.ahead = ahead();
    if (ahead() > 0)
      loss.factor =
          transformer_.extra_prediction_weight / static_cast<double>(transformer_.extra_predictions);
    const int dy = gradient("norm", {N_, transformer_.hidden});
    const int y = frozen(head_weight()[0]) ? -1 : all_rows(kept.y, "norm.rows.again");
    matmul_gradients(dlogits, dy, y, head_weight(), vocabulary_rows(), transformer_.hidden, false);
    const int summed = sum_rows(dy, "norm.sum.gradient", TensorRole::activation_gradient);
    return norm_between_backward(summed, kept.input, kept.statistics, "norm", "input", dfurther);
  }
  int norm_between(int x, const std::string& name, int& statistics) {
    const int y = activation(name, {R_, transformer_.hidden});
    statistics = exact(name + ".statistics", {R_, statistics_width()});
    emit_between(KernelOp::norm, {x}, {y, statistics},
                 layer_weights({(name + ".weight").c_str(), (name + ".bias").c_str()}));
    return y;
  }
  // To the gradient of x, `dx` its name, with what else reaches it.
  int norm_between_backward(int dy, int x, int statistics, const std::string& name, const std::string& dx,
                            int residual = -1) {
    const int made = gradient(dx, {R_, transformer_.hidden});
    Ids in = {dy, x, statistics};
    if (residual >= 0) in.push_back(residual);
    emit_between(KernelOp::norm_backward, in, {made},
                 layer_weights({(name + ".weight").c_str(), (name + ".bias").c_str()}));
    return made;
  }
  // From the hidden vector and the embedding of the token that was to be predicted from it.
  KeptExtra extra_forward(int hidden) {
    KeptExtra kept;
    const std::int64_t C = transformer_.hidden;
    kept.hidden = hidden;
    kept.hidden_normed = norm_between(hidden, "hidden_norm", kept.hidden_statistics);
    kept.token = embed("token");
    kept.token_normed = norm_between(kept.token, "token_norm", kept.token_statistics);
    const int from_hidden = activation("from_hidden", {R_, C}),
              from_token = activation("from_token", {R_, C});
    matmul(kept.hidden_normed, from_hidden, layer_weights({"from_hidden.weight"}), C, C);
    matmul(kept.token_normed, from_token, layer_weights({"from_token.weight"}), C, C);
    kept.layer = layer_forward(sum_of(from_hidden, from_token, "merged", TensorRole::activation));
    kept.head = head_forward(kept.layer.output);
    return kept;
  }
  // To the gradient of that hidden vector.
  int extra_backward(const KeptExtra& kept, int dfurther) {
    const std::int64_t C = transformer_.hidden;
    const int dout = head_backward(kept.head, dfurther);
    Kept of_layer = kept.layer;
    if (recompute_layers_ >= chunk().last_layer - chunk().first_layer) compute_again(of_layer);
    const int dmerged = layer_backward(of_layer, dout);
    const int dtoken_normed = gradient("token_norm", {R_, C}),
              dhidden_normed = gradient("hidden_norm", {R_, C});
    matmul_gradients(dmerged, dtoken_normed, kept.token_normed, layer_weights({"from_token.weight"}), C, C);
    embed_backward(
        norm_between_backward(dtoken_normed, kept.token, kept.token_statistics, "token_norm", "token"),
        "token");
    matmul_gradients(dmerged, dhidden_normed, kept.hidden_normed, layer_weights({"from_hidden.weight"}), C,
                     C);
    return norm_between_backward(dhidden_normed, kept.hidden, kept.hidden_statistics, "hidden_norm",
                                 "hidden");
  }
  int loss_backward() {
    int dx = -1;
    for (std::int64_t k = transformer_.trained_extra() - 1; k >= 0; --k) {
      set_layer(transformer_.layers + 1 + k);
      dx = extra_backward(extra_[static_cast<std::size_t>(k)], dx);
    }
    set_layer(transformer_.layers);
    return head_backward(head_, dx);
  }
  // `dout`, dmiddle, dx: of this rank's rows. Inputs of cut matmuls are gathered again for gradients of weights alone.
  int layer_backward(const Kept& kept, int dout) {
    bias_gradient(dout, "fc2.bias");
    const int dcontracted = all_rows(dout, "fc2.rows.gradient", TensorRole::activation_gradient);
    const bool needed = !transformer_.lora.used() ||
                        (!transformer_.has_experts(layer()) && transformer_.lora.beside(inner_name()));
    const int y2 = needed ? all_rows(kept.y2, "norm2.rows.again") : -1;
    const int dy2 = transformer_.has_experts(layer()) ? experts_backward(*this, y2, kept.experts, dcontracted)
                                                      : dense_backward(y2, kept, dcontracted);
    const int dmiddle = norm_between_backward(dy2, kept.middle, kept.statistics2, "norm2", "middle", dout);
    return attention_part_backward(kept, dmiddle);
  }
  int dense_backward(int y2, const Kept& kept, int dout) {
    const std::int64_t C = transformer_.hidden;
    const int dactivated = linear_gradients(dout, "activated", kept.activated, "fc2", C,
                                            transformer_.ffn / tp_, kept.fc2_narrow);
    const int dinner = gradient("inner", {N_, inner_rows()});
    emit(KernelOp::activation_backward, {dactivated, kept.inner}, {dinner});
    const int dy2 = linear_gradients(dinner, "norm2", y2, inner_name(), inner_rows(), C, kept.inner_narrow);
    return sum_rows(dy2, "norm2.sum.gradient", TensorRole::activation_gradient);
  }
  int attention_part_backward(const Kept& kept, int dmiddle) {
    const std::int64_t C = transformer_.hidden;
    bias_gradient(dmiddle, "proj.bias");
    const int dprojected = all_rows(dmiddle, "proj.rows.gradient", TensorRole::activation_gradient);
    const int dattention = linear_gradients(dprojected, "attention", kept.attention, "proj", C,
                                            attention_width(), kept.proj_narrow);
    const int dqkv = attention_backward(kept, dattention);
    const bool needed = !transformer_.lora.used() || transformer_.lora.beside("qkv");
    const int y1 = needed ? all_rows(kept.y1, "norm1.rows.again") : -1;
    const int dy1 = transformer_.latent.used() ? latent_backward(*this, y1, kept.latent, dqkv)
                                               : heads_backward(y1, kept, dqkv);
    const bool leaves = layer() == chunk().first_layer && receives_input();
    const int dx =
        leaves ? boundary("input.gradient", TensorRole::activation_gradient) : gradient("input", {R_, C});
    emit_between(KernelOp::norm_backward, {dy1, kept.input, kept.statistics1, dmiddle}, {dx},
                 layer_weights({"norm1.weight", "norm1.bias"}));
    return dx;
  }
  int heads_backward(int y1, const Kept& kept, int dqkv) {
    if (transformer_.family == Family::llama) {
      const int unrotated = gradient("qkv.unrotated", {N_, qkv_rows()});
      emit(KernelOp::rope_backward, {dqkv}, {unrotated});
      dqkv = unrotated;
    }
    if (transformer_.qk_norm) dqkv = normalise_heads_backward(kept, dqkv);
    const int dy1 =
        linear_gradients(dqkv, "norm1", y1, "qkv", qkv_rows(), transformer_.hidden, kept.qkv_narrow);
    return sum_rows(dy1, "norm1.sum.gradient", TensorRole::activation_gradient);
  }
  void bias_gradient(int dy, const char* name) {
    const Ids bias = layer_weights({name});
    if (!bias.empty() && !frozen(bias[0])) emit_between(KernelOp::add_residual_backward, {dy}, {}, bias);
  }

  // Of experts, whose inputs are the norm's output, nothing but that.
  void compute_norms_again(Kept& kept) {
    kept.y1 = norm_between(kept.input, "norm1", kept.statistics1);
    kept.y2 = norm_between(kept.middle, "norm2", kept.statistics2);
    if (transformer_.has_experts(layer())) return;
    const int y2 = all_rows(kept.y2, "norm2.rows");
    kept.inner = linear(y2, activation("inner", {N_, inner_rows()}), inner_name(), inner_rows(),
                        transformer_.hidden, kept.inner_narrow);
  }
  void compute_again(Kept& kept) {
    set_again(true);
    if (recompute_ == Recompute::full)
      kept = layer_forward(kept.input);  // collectives included, as frameworks do
    if (recompute_ == Recompute::selective) attend(kept);
    if (recompute_ == Recompute::alternate) compute_norms_again(kept);
    set_again(false);
  }

  void backward() {
    add_block(Pass::backward);
    int dx = ends()           ? loss_backward()
             : sends_output() ? boundary("output.gradient", TensorRole::activation_gradient)
                              : input_gradients_.at(next_here());
    for (auto i = static_cast<int>(chunk().last_layer) - 1; i >= chunk().first_layer; --i) {
      set_layer(i);
      Kept kept = kept_[i];
      if (i - chunk().first_layer < recompute_layers_) compute_again(kept);
      dx = layer_backward(kept, dx);
    }
    input_gradients_[chunk_] = dx;
    if (ends() && !has_layers() && receives_input()) leave_as(dx, "input.gradient");
    if (!begins() || frozen(weights({"embedding.token.weight"})[0])) return;
    set_layer(-1);
    embed_backward(dx, "output");
  }
};

}  // namespace

void build_kernels(const Job& job, Program& program) {
  for (ProgramClass& of_class : program.classes) StageBuilder(job, of_class).build();
}

}  // namespace motley
