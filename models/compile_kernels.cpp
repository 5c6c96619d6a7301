// Pass "kernels": the tensors a stage holds and the kernels of its chunks' forward and backward, for one micro-batch.
// Where one stage holds two virtual stages in a row, the first hands its output over: no tensor of its own leaves.
// Tensor parallelism as in Megatron-LM (arXiv:1909.08053): qkv and fc1 cut by rows, proj and fc2 by columns, one
// all-reduce after each of the latter forward and before each of the former's input backward; vocabulary-parallel
// embedding and cross-entropy. Activations are kept whole between (no sequence parallelism in this version).
#include <fmt/format.h>

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
  int unnormed = -1, qk_statistics = -1;  // qk_norm
  KeptLatent latent;
  KeptExperts experts;
};
struct KeptHead {
  int y = -1, statistics = -1, logits = -1, maximum = -1, sums = -1;
};

Recompute recompute_of(const Job& job, const ProgramClass& of_class) {
  const auto& stages = job.strategy.templates[static_cast<std::size_t>(of_class.pipeline)].stages;
  return stages[static_cast<std::size_t>(of_class.stage)].recompute.value_or(job.strategy.recompute);
}

class StageBuilder : private KernelWriter {
 public:
  StageBuilder(const Job& job, ProgramClass& of_class)
      : KernelWriter(job, of_class),
        tied_(job.transformer.tied_embeddings),
        recompute_(recompute_of(job, of_class)) {}

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
  std::map<int, Kept> kept_;
  KeptHead head_;
  std::map<int, int> outputs_, input_gradients_;  // by chunk: what is handed over
  int chunk_ = 0;

  std::int64_t qkv_rows() const {
    return ((transformer_.heads + transformer_.kv_heads) * transformer_.head_dim +
            transformer_.kv_heads * transformer_.value_dim()) /
           tp_;
  }
  std::int64_t attention_width() const { return transformer_.heads * transformer_.value_dim() / tp_; }
  std::int64_t inner_rows() const { return (transformer_.gated() ? 2 : 1) * transformer_.ffn / tp_; }
  std::int64_t statistics_width() const { return transformer_.family == Family::gpt2 ? 2 : 1; }
  std::int64_t vocabulary_rows() const { return (transformer_.vocabulary + tp_ - 1) / tp_; }

  const Chunk& chunk() const { return class_.chunks[static_cast<std::size_t>(chunk_)]; }
  bool begins() const { return chunk().first_layer == 0; }                 // holds the embedding
  bool ends() const { return chunk().last_layer == transformer_.layers; }  // holds the head
  int previous_here() const { return chunk_at(class_, chunk().virtual_stage - 1); }
  int next_here() const { return chunk_at(class_, chunk().virtual_stage + 1); }
  bool receives_input() const { return !begins() && previous_here() < 0; }
  bool sends_output() const { return !ends() && next_here() < 0; }

  Ids head_weight() const { return weights({tied_ ? "embedding.token.weight" : "head.weight"}); }

  bool holds(const Parameter& parameter) const {
    if (parameter.layer == -1) {
      const bool copy_for_head = tied_ && class_.last_stage && parameter.name == "embedding.token.weight";
      return class_.first_stage || copy_for_head;
    }
    if (parameter.layer == transformer_.layers) return class_.last_stage;
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
    kept.y1 = activation("norm1", {N_, C});
    kept.statistics1 = exact("norm1.statistics", {N_, statistics_width()});
    emit(KernelOp::norm, {input}, {kept.y1, kept.statistics1}, layer_weights({"norm1.weight", "norm1.bias"}));
    if (transformer_.latent.used())
      kept.qkv = latent_forward(*this, kept.y1, kept.latent);
    else
      make_heads(kept);
    attend(kept);
    const int projected = activation("proj", {N_, C});
    matmul(kept.attention, projected, layer_weights({"proj.weight"}), C, attention_width());
    all_reduce(projected);
    kept.middle = activation("middle", {N_, C});
    emit(KernelOp::add_residual, {projected, input}, {kept.middle}, layer_weights({"proj.bias"}));
    feed_forward(kept);
    return kept;
  }
  void make_heads(Kept& kept) {
    kept.qkv = activation("qkv", {N_, qkv_rows()});
    matmul(kept.y1, kept.qkv, layer_weights({"qkv.weight", "qkv.bias"}), qkv_rows(), transformer_.hidden);
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
    all_reduce(dweights);
    emit(KernelOp::accumulate, {dweights}, {}, both).n = transformer_.head_dim;
    return dunnormed;
  }
  void attend(Kept& kept) {
    const std::int64_t heads = transformer_.heads / tp_;
    kept.attention = activation("attention", {N_, attention_width()});
    kept.lse = exact("attention.lse", {B_, heads, T_});
    // Products: over head_dim the scores, over the values' width the output.
    shape_of_attention(emit(KernelOp::attention, {kept.qkv}, {kept.attention, kept.lse}),
                       transformer_.head_dim + transformer_.value_dim());
  }
  void shape_of_attention(Kernel& kernel, std::int64_t widths) {
    kernel.m = B_ * transformer_.heads / tp_;
    kernel.n = T_;
    kernel.k = transformer_.head_dim;
    kernel.flops = 2.0 * static_cast<double>(kernel.m) * attention_pairs(T_, transformer_.window(layer())) *
                   static_cast<double>(widths);
  }
  void feed_forward(Kept& kept) {
    const std::int64_t C = transformer_.hidden;
    kept.y2 = activation("norm2", {N_, C});
    kept.statistics2 = exact("norm2.statistics", {N_, statistics_width()});
    emit(KernelOp::norm, {kept.middle}, {kept.y2, kept.statistics2},
         layer_weights({"norm2.weight", "norm2.bias"}));
    const int contracted =
        transformer_.has_experts(layer()) ? experts_forward(*this, kept.y2, kept.experts) : dense(kept);
    all_reduce(contracted);
    const bool leaves = !again() && layer() + 1 == chunk().last_layer && sends_output();
    kept.output = leaves ? boundary("output", TensorRole::activation) : activation("output", {N_, C});
    emit(KernelOp::add_residual, {contracted, kept.middle}, {kept.output}, layer_weights({"fc2.bias"}));
  }

  int dense(Kept& kept) {
    const std::int64_t C = transformer_.hidden;
    kept.inner = activation("inner", {N_, inner_rows()});
    matmul(kept.y2, kept.inner, layer_weights({"fc1.weight", "gate_up.weight", "fc1.bias", "gate_up.bias"}),
           inner_rows(), C);
    kept.activated = activation("activated", {N_, transformer_.ffn / tp_});
    emit(KernelOp::activation, {kept.inner}, {kept.activated});
    const int contracted = activation("fc2", {N_, C});
    matmul(kept.activated, contracted, layer_weights({"fc2.weight"}), C, transformer_.ffn / tp_);
    return contracted;
  }

  // A tensor that another rank sends or is sent.
  int boundary(const char* what, TensorRole role) {
    return add_tensor(boundary_name(class_, chunk_, what), role, format_, {N_, transformer_.hidden});
  }

  void add_block(Pass pass) {
    set_block(static_cast<int>(class_.blocks.size()));
    class_.blocks.push_back({block_name(class_, pass, chunk_), pass, chunk_, {}});
  }

  void forward() {
    add_block(Pass::forward);
    const std::int64_t C = transformer_.hidden;
    int x = -1;
    if (begins()) {
      set_layer(-1);
      x = activation("output", {N_, C});
      // Assumes: a look-up reads and writes one row a token, not the table.
      emit(KernelOp::embed, {}, {x}, weights({"embedding.token.weight", "embedding.position.weight"})).bytes =
          2 * tensor(x).bytes;
      all_reduce(x);
    } else {
      x = receives_input() ? boundary("input", TensorRole::activation) : outputs_.at(previous_here());
    }
    for (auto i = static_cast<int>(chunk().first_layer); i < chunk().last_layer; ++i) {
      set_layer(i);
      kept_[i] = layer_forward(x);
      x = kept_[i].output;
    }
    outputs_[chunk_] = x;
    if (ends()) head_forward(x);
  }
  void head_forward(int x) {
    set_layer(transformer_.layers);
    const std::int64_t C = transformer_.hidden;
    head_.y = activation("norm", {N_, C});
    head_.statistics = exact("norm.statistics", {N_, statistics_width()});
    emit(KernelOp::norm, {x}, {head_.y, head_.statistics}, weights({"head.norm.weight", "head.norm.bias"}));
    head_.logits = activation("logits", {N_, vocabulary_rows()});
    matmul(head_.y, head_.logits, head_weight(), vocabulary_rows(), C);
    head_.maximum = exact("logits.maximum", {N_});
    emit(KernelOp::logits_maximum, {head_.logits}, {head_.maximum});
    all_reduce(head_.maximum, ReduceOp::maximum);
    head_.sums = exact("logits.sums", {N_, 2});
    emit(KernelOp::logits_sum, {head_.logits, head_.maximum}, {head_.sums});
    all_reduce(head_.sums);
    emit(KernelOp::loss, {head_.maximum, head_.sums}, {exact("losses", {N_})});
  }

  int head_backward(int x) {
    set_layer(transformer_.layers);
    const int dlogits = gradient("logits", {N_, vocabulary_rows()});
    emit(KernelOp::loss_backward, {head_.logits, head_.maximum, head_.sums}, {dlogits});
    const int dy = gradient("norm", {N_, transformer_.hidden});
    matmul_gradients(dlogits, dy, head_.y, head_weight(), vocabulary_rows(), transformer_.hidden);
    all_reduce(dy);
    const int dx = gradient("input", {N_, transformer_.hidden});
    emit(KernelOp::norm_backward, {dy, x, head_.statistics}, {dx},
         weights({"head.norm.weight", "head.norm.bias"}));
    return dx;
  }
  int layer_backward(const Kept& kept, int dout) {
    bias_gradient(dout, "fc2.bias");
    const int dy2 = transformer_.has_experts(layer()) ? experts_backward(*this, kept.experts, dout)
                                                      : dense_backward(kept, dout);
    const int dmiddle = gradient("middle", {N_, transformer_.hidden});
    emit(KernelOp::norm_backward, {dy2, kept.middle, kept.statistics2, dout}, {dmiddle},
         layer_weights({"norm2.weight", "norm2.bias"}));
    return attention_part_backward(kept, dmiddle);
  }
  int dense_backward(const Kept& kept, int dout) {
    const std::int64_t C = transformer_.hidden;
    const int dactivated = gradient("activated", {N_, transformer_.ffn / tp_});
    matmul_gradients(dout, dactivated, kept.activated, layer_weights({"fc2.weight"}), C,
                     transformer_.ffn / tp_);
    const int dinner = gradient("inner", {N_, inner_rows()});
    emit(KernelOp::activation_backward, {dactivated, kept.inner}, {dinner});
    const int dy2 = gradient("norm2", {N_, C});
    matmul_gradients(dinner, dy2, kept.y2,
                     layer_weights({"fc1.weight", "gate_up.weight", "fc1.bias", "gate_up.bias"}),
                     inner_rows(), C);
    all_reduce(dy2);
    return dy2;
  }
  int attention_part_backward(const Kept& kept, int dmiddle) {
    const std::int64_t C = transformer_.hidden;
    bias_gradient(dmiddle, "proj.bias");
    const int dattention = gradient("attention", {N_, attention_width()});
    matmul_gradients(dmiddle, dattention, kept.attention, layer_weights({"proj.weight"}), C,
                     attention_width());
    int dqkv = gradient("qkv", {N_, qkv_rows()});
    // Five products: the scores again, and the gradients of v, scores, q and k (FlashAttention, arXiv:2205.14135).
    // 8 of the 10 are the model's; Program counts all ten as done.
    shape_of_attention(
        emit(KernelOp::attention_backward, {dattention, kept.qkv, kept.attention, kept.lse}, {dqkv}),
        3 * transformer_.head_dim + 2 * transformer_.value_dim());
    const int dy1 =
        transformer_.latent.used() ? latent_backward(*this, kept.latent, dqkv) : heads_backward(kept, dqkv);
    const bool leaves = layer() == chunk().first_layer && receives_input();
    const int dx =
        leaves ? boundary("input.gradient", TensorRole::activation_gradient) : gradient("input", {N_, C});
    emit(KernelOp::norm_backward, {dy1, kept.input, kept.statistics1, dmiddle}, {dx},
         layer_weights({"norm1.weight", "norm1.bias"}));
    return dx;
  }
  int heads_backward(const Kept& kept, int dqkv) {
    if (transformer_.family == Family::llama) {
      const int unrotated = gradient("qkv.unrotated", {N_, qkv_rows()});
      emit(KernelOp::rope_backward, {dqkv}, {unrotated});
      dqkv = unrotated;
    }
    if (transformer_.qk_norm) dqkv = normalise_heads_backward(kept, dqkv);
    const int dy1 = gradient("norm1", {N_, transformer_.hidden});
    matmul_gradients(dqkv, dy1, kept.y1, layer_weights({"qkv.weight", "qkv.bias"}), qkv_rows(),
                     transformer_.hidden);
    all_reduce(dy1);
    return dy1;
  }
  void bias_gradient(int dy, const char* name) {
    const Ids bias = layer_weights({name});
    if (!bias.empty()) emit(KernelOp::add_residual_backward, {dy}, {}, bias);
  }

  void backward() {
    add_block(Pass::backward);
    int dx = ends()           ? head_backward(outputs_.at(chunk_))
             : sends_output() ? boundary("output.gradient", TensorRole::activation_gradient)
                              : input_gradients_.at(next_here());
    for (auto i = static_cast<int>(chunk().last_layer) - 1; i >= chunk().first_layer; --i) {
      set_layer(i);
      Kept kept = kept_[i];
      if (recompute_ == Recompute::full) {  // the whole layer again, collectives included, as frameworks do
        set_again(true);
        kept = layer_forward(kept.input);
        set_again(false);
      }
      dx = layer_backward(kept, dx);
    }
    input_gradients_[chunk_] = dx;
    if (!begins()) return;
    set_layer(-1);
    emit(KernelOp::embed_backward, {dx}, {}, weights({"embedding.token.weight", "embedding.position.weight"}))
        .bytes = 3 * tensor(dx).bytes;
  }
};

}  // namespace

void build_kernels(const Job& job, Program& program) {
  for (ProgramClass& of_class : program.classes) StageBuilder(job, of_class).build();
}

}  // namespace motley
