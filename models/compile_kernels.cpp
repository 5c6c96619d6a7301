// Pass "kernels": the tensors a stage holds and the kernels of its chunks' forward and backward, for one micro-batch.
// Where one stage holds two virtual stages in a row, the first hands its output over: no tensor of its own leaves.
// Tensor parallelism as in Megatron-LM (arXiv:1909.08053): qkv and fc1 cut by rows, proj and fc2 by columns, one
// all-reduce after each of the latter forward and before each of the former's input backward; vocabulary-parallel
// embedding and cross-entropy. Activations are kept whole between (no sequence parallelism in this version).
#include <fmt/format.h>

#include <map>

#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

using Ids = std::vector<std::int32_t>;

// What a layer's forward leaves for its backward.
struct Kept {
  int input = -1, y1 = -1, statistics1 = -1, qkv = -1, attention = -1, lse = -1, middle = -1, y2 = -1,
      statistics2 = -1, inner = -1, activated = -1, output = -1;
  int unnormed = -1, qk_statistics = -1;  // qk_norm
};
struct KeptHead {
  int y = -1, statistics = -1, logits = -1, maximum = -1, sums = -1;
};

Recompute recompute_of(const Job& job, const ProgramClass& of_class) {
  const auto& stages = job.strategy.templates[static_cast<std::size_t>(of_class.pipeline)].stages;
  return stages[static_cast<std::size_t>(of_class.stage)].recompute.value_or(job.strategy.recompute);
}

class StageBuilder {
 public:
  StageBuilder(const Job& job, ProgramClass& of_class)
      : transformer_(job.transformer),
        class_(of_class),
        tp_(of_class.tensor_parallel),
        tied_(job.transformer.tied_embeddings),
        recompute_(recompute_of(job, of_class)),
        format_(job.train.precision),
        gradient_format_(job.train.gradients),
        B_(of_class.micro_batch),
        T_(job.train.sequence),
        N_(B_ * T_) {}

  void build() {
    add_parameters();
    const int chunks = static_cast<int>(class_.chunks.size());
    // In the order in which a micro-batch passes them: what is handed over is there when it is asked for.
    for (chunk_ = 0; chunk_ < chunks; ++chunk_) forward();
    for (chunk_ = chunks - 1; chunk_ >= 0; --chunk_) backward();
  }

 private:
  const Transformer& transformer_;
  ProgramClass& class_;
  const std::int64_t tp_;
  const bool tied_;
  const Recompute recompute_;
  const Format format_, gradient_format_;
  const std::int64_t B_, T_, N_;
  std::map<std::string, int> parameter_ids_;
  std::map<int, Kept> kept_;
  KeptHead head_;
  std::map<int, int> outputs_, input_gradients_;  // by chunk: what is handed over
  int chunk_ = 0;
  int block_ = 0;
  int layer_ = 0;
  bool again_ = false;  // building a recomputed forward

  std::int64_t qkv_rows() const {
    return (transformer_.heads + 2 * transformer_.kv_heads) * transformer_.head_dim / tp_;
  }
  std::int64_t attention_width() const { return transformer_.heads * transformer_.head_dim / tp_; }
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

  Tensor& tensor(int id) { return class_.tensors[static_cast<std::size_t>(id)]; }

  int add_tensor(std::string name, TensorRole role, Format format, std::vector<std::int64_t> shape,
                 int parameter = -1) {
    std::int64_t count = 1;
    for (std::int64_t extent : shape) count *= extent;
    class_.tensors.push_back(
        {std::move(name), role, format, std::move(shape), count * bytes_of(format), parameter});
    return static_cast<int>(class_.tensors.size()) - 1;
  }
  std::string prefixed(const std::string& name) const {
    const std::string where = layer_ == transformer_.layers ? "head"
                              : layer_ < 0                  ? "embedding"
                                                            : fmt::format("layers.{}", layer_);
    return where + "." + name + (again_ ? ".again" : "");
  }
  int activation(const std::string& name, std::vector<std::int64_t> shape) {
    return add_tensor(prefixed(name), TensorRole::activation, format_, std::move(shape));
  }
  int exact(const std::string& name, std::vector<std::int64_t> shape) {
    return add_tensor(prefixed(name), TensorRole::activation, Format::fp32, std::move(shape));
  }
  int gradient(const std::string& name, std::vector<std::int64_t> shape) {
    return add_tensor(prefixed(name) + ".gradient", TensorRole::activation_gradient, format_,
                      std::move(shape));
  }
  // The parameter's tensor, or nothing when this family has no such parameter.
  Ids weights(std::initializer_list<std::string> names) const {
    Ids ids;
    for (const std::string& name : names)
      if (const auto found = parameter_ids_.find(name); found != parameter_ids_.end())
        ids.push_back(found->second);
    return ids;
  }
  Ids layer_weights(std::initializer_list<const char*> names) const {
    Ids ids;
    for (const char* name : names)
      for (int id : weights({fmt::format("layers.{}.{}", layer_, name)})) ids.push_back(id);
    return ids;
  }
  Ids head_weight() const { return weights({tied_ ? "embedding.token.weight" : "head.weight"}); }

  // Appends a kernel. Bytes moved: every operand once; callers say where that is not so.
  Kernel& emit(KernelOp op, Ids in, Ids out, Ids parameters = {}) {
    Kernel kernel;
    kernel.op = op;
    kernel.layer = layer_;
    kernel.recompute = again_;
    kernel.in = std::move(in);
    kernel.out = std::move(out);
    kernel.parameters = std::move(parameters);
    for (const Ids* ids : {&kernel.in, &kernel.out, &kernel.parameters})
      for (int id : *ids) kernel.bytes += tensor(id).bytes;
    auto& kernels = class_.blocks[static_cast<std::size_t>(block_)].kernels;
    kernels.push_back(kernel);
    return kernels.back();
  }
  void shape_of_matmul(Kernel& kernel, std::int64_t n, std::int64_t k) {
    kernel.m = N_;
    kernel.n = n;
    kernel.k = k;
    kernel.flops = 2.0 * static_cast<double>(N_) * static_cast<double>(n) * static_cast<double>(k);
  }
  void matmul(int x, int y, const Ids& parameters, std::int64_t n, std::int64_t k) {
    shape_of_matmul(emit(KernelOp::matmul, {x}, {y}, parameters), n, k);
  }
  void matmul_gradients(int dy, int dx, int x, const Ids& parameters, std::int64_t n, std::int64_t k) {
    shape_of_matmul(emit(KernelOp::matmul_input_gradient, {dy}, {dx}, {parameters.at(0)}), n, k);
    Kernel& weight = emit(KernelOp::matmul_weight_gradient, {dy, x}, {}, parameters);
    shape_of_matmul(weight, n, k);
    for (int id : parameters)  // the accumulated gradient is read and written, not the parameter
      weight.bytes +=
          2 * tensor(id).bytes / bytes_of(format_) * bytes_of(gradient_format_) - tensor(id).bytes;
  }
  void all_reduce(int id, ReduceOp reduce = ReduceOp::sum) {
    if (tp_ == 1) return;
    Kernel& kernel = emit(KernelOp::all_reduce, {id}, {id});
    kernel.bytes = tensor(id).bytes;
    kernel.reduce = reduce;
  }

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
    for (int pass = 0; pass < 3; ++pass)
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!holds(all[i])) continue;
        const auto shape = shard_shape(all[i], tp_);
        const int index = static_cast<int>(i);
        if (pass == 0)
          parameter_ids_[all[i].name] = add_tensor(all[i].name, TensorRole::parameter, format_, shape, index);
        if (pass == 1)
          add_tensor(all[i].name + ".gradient", TensorRole::gradient, gradient_format_, shape, index);
        if (pass == 2) add_optimizer_state(all[i].name, shape, index);
      }
    for (const Tensor& held : class_.tensors) class_.static_bytes += held.bytes;
  }
  // Both AdamW moments and, below fp32, the master weights: fp32 (mixed-precision training, arXiv:1710.03740).
  void add_optimizer_state(const std::string& name, std::vector<std::int64_t> shape, int index) {
    shape.insert(shape.begin(), bytes_of(format_) < 4 ? 3 : 2);
    add_tensor(name + ".optimizer", TensorRole::optimizer, Format::fp32, shape, index);
  }

  Kept layer_forward(int input) {
    Kept kept;
    const std::int64_t C = transformer_.hidden;
    kept.input = input;
    kept.y1 = activation("norm1", {N_, C});
    kept.statistics1 = exact("norm1.statistics", {N_, statistics_width()});
    emit(KernelOp::norm, {input}, {kept.y1, kept.statistics1}, layer_weights({"norm1.weight", "norm1.bias"}));
    kept.qkv = activation("qkv", {N_, qkv_rows()});
    matmul(kept.y1, kept.qkv, layer_weights({"qkv.weight", "qkv.bias"}), qkv_rows(), C);
    if (transformer_.qk_norm) normalise_heads(kept);
    if (transformer_.family == Family::llama) {
      const int rotated = activation("qkv.rotated", {N_, qkv_rows()});
      emit(KernelOp::rope, {kept.qkv}, {rotated});
      kept.qkv = rotated;
    }
    attend(kept);
    const int projected = activation("proj", {N_, C});
    matmul(kept.attention, projected, layer_weights({"proj.weight"}), C, attention_width());
    all_reduce(projected);
    kept.middle = activation("middle", {N_, C});
    emit(KernelOp::add_residual, {projected, input}, {kept.middle}, layer_weights({"proj.bias"}));
    feed_forward(kept);
    return kept;
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
    const int dweights = add_tensor(prefixed("qk_norm") + ".gradient", TensorRole::activation_gradient,
                                    Format::fp32, {2, transformer_.head_dim});
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
    kernel.flops = 2.0 * static_cast<double>(kernel.m) * attention_pairs(T_, transformer_.window(layer_)) *
                   static_cast<double>(widths);
  }
  void feed_forward(Kept& kept) {
    const std::int64_t C = transformer_.hidden;
    kept.y2 = activation("norm2", {N_, C});
    kept.statistics2 = exact("norm2.statistics", {N_, statistics_width()});
    emit(KernelOp::norm, {kept.middle}, {kept.y2, kept.statistics2},
         layer_weights({"norm2.weight", "norm2.bias"}));
    kept.inner = activation("inner", {N_, inner_rows()});
    matmul(kept.y2, kept.inner, layer_weights({"fc1.weight", "gate_up.weight", "fc1.bias", "gate_up.bias"}),
           inner_rows(), C);
    kept.activated = activation("activated", {N_, transformer_.ffn / tp_});
    emit(KernelOp::activation, {kept.inner}, {kept.activated});
    const int contracted = activation("fc2", {N_, C});
    matmul(kept.activated, contracted, layer_weights({"fc2.weight"}), C, transformer_.ffn / tp_);
    all_reduce(contracted);
    const bool leaves = !again_ && layer_ + 1 == chunk().last_layer && sends_output();
    kept.output = leaves ? boundary("output", TensorRole::activation) : activation("output", {N_, C});
    emit(KernelOp::add_residual, {contracted, kept.middle}, {kept.output}, layer_weights({"fc2.bias"}));
  }

  // A tensor that another rank sends or is sent.
  int boundary(const char* what, TensorRole role) {
    return add_tensor(boundary_name(class_, chunk_, what), role, format_, {N_, transformer_.hidden});
  }

  void add_block(Pass pass) {
    block_ = static_cast<int>(class_.blocks.size());
    class_.blocks.push_back({block_name(class_, pass, chunk_), pass, chunk_, {}});
  }

  void forward() {
    add_block(Pass::forward);
    const std::int64_t C = transformer_.hidden;
    int x = -1;
    if (begins()) {
      layer_ = -1;
      x = activation("output", {N_, C});
      // Assumes: a look-up reads and writes one row a token, not the table.
      emit(KernelOp::embed, {}, {x}, weights({"embedding.token.weight", "embedding.position.weight"})).bytes =
          2 * tensor(x).bytes;
      all_reduce(x);
    } else {
      x = receives_input() ? boundary("input", TensorRole::activation) : outputs_.at(previous_here());
    }
    for (layer_ = static_cast<int>(chunk().first_layer); layer_ < chunk().last_layer; ++layer_) {
      kept_[layer_] = layer_forward(x);
      x = kept_[layer_].output;
    }
    outputs_[chunk_] = x;
    if (ends()) head_forward(x);
  }
  void head_forward(int x) {
    layer_ = static_cast<int>(transformer_.layers);
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
    layer_ = static_cast<int>(transformer_.layers);
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
    const std::int64_t C = transformer_.hidden;
    bias_gradient(dout, "fc2.bias");
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
    const int dmiddle = gradient("middle", {N_, C});
    emit(KernelOp::norm_backward, {dy2, kept.middle, kept.statistics2, dout}, {dmiddle},
         layer_weights({"norm2.weight", "norm2.bias"}));
    return attention_part_backward(kept, dmiddle);
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
    if (transformer_.family == Family::llama) {
      const int unrotated = gradient("qkv.unrotated", {N_, qkv_rows()});
      emit(KernelOp::rope_backward, {dqkv}, {unrotated});
      dqkv = unrotated;
    }
    if (transformer_.qk_norm) dqkv = normalise_heads_backward(kept, dqkv);
    const int dy1 = gradient("norm1", {N_, C});
    matmul_gradients(dqkv, dy1, kept.y1, layer_weights({"qkv.weight", "qkv.bias"}), qkv_rows(), C);
    all_reduce(dy1);
    const bool leaves = layer_ == chunk().first_layer && receives_input();
    const int dx =
        leaves ? boundary("input.gradient", TensorRole::activation_gradient) : gradient("input", {N_, C});
    emit(KernelOp::norm_backward, {dy1, kept.input, kept.statistics1, dmiddle}, {dx},
         layer_weights({"norm1.weight", "norm1.bias"}));
    return dx;
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
    for (layer_ = static_cast<int>(chunk().last_layer) - 1; layer_ >= chunk().first_layer; --layer_) {
      Kept kept = kept_[layer_];
      if (recompute_ == Recompute::full) {  // the whole layer again, collectives included, as frameworks do
        again_ = true;
        kept = layer_forward(kept.input);
        again_ = false;
      }
      dx = layer_backward(kept, dx);
    }
    input_gradients_[chunk_] = dx;
    if (!begins()) return;
    layer_ = -1;
    emit(KernelOp::embed_backward, {dx}, {}, weights({"embedding.token.weight", "embedding.position.weight"}))
        .bytes = 3 * tensor(dx).bytes;
  }
};

// What is read and counted, but has no kernels here.
void refuse_without_kernels(const Transformer& t) {
  const char* missing = t.experts.count > 0 ? "routed experts"
                        : t.latent.used()   ? "latent attention"
                                            : nullptr;
  if (missing == nullptr) return;
  throw Refusal(
      Exit::infeasible, "no-kernels", {},
      fmt::format("`{}` has {}: this version counts its parameters and FLOPs, but compiles no kernels "
                  "for that",
                  t.name, missing),
      "`motley show model` prints the counts");
}

}  // namespace

void build_kernels(const Job& job, Program& program) {
  refuse_without_kernels(job.transformer);
  for (ProgramClass& of_class : program.classes) StageBuilder(job, of_class).build();
}

}  // namespace motley
