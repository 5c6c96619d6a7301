// Pass "kernels": the tensors that a stage holds and the kernels of its chunks' forward and backward, for one
// micro-batch. Where one stage holds two consecutive virtual stages, the first hands its output over, and no tensor
// crosses ranks there. Tensor parallelism is that of Megatron-LM (arXiv:1909.08053): qkv and fc1 are cut by rows,
// proj and fc2 by columns, with an all-reduce after proj and fc2 in the forward and after the input gradients of qkv
// and fc1 in the backward; embedding and cross-entropy are vocabulary-parallel. Under sequence parallelism
// (arXiv:2205.05198) the rows between cut matmuls are divided over the same ranks: an all-gather stands before qkv
// and fc1, a reduce-scatter after proj and fc2, and gathered inputs are not kept but gathered again for the backward.
#include <map>
#include <optional>
#include <vector>

#include "models/compile/compile_passes.hpp"
#include "models/compile/stage_parts.hpp"

namespace motley {
namespace {

const Stage& stage_of(const Job& job, const RankProgram& rank_program) {
  return job.strategy.templates[at(rank_program.pipeline)].stages[at(rank_program.stage)];
}

class StageKernels {
 public:
  StageKernels(const Job& job, RankProgram& rank_program)
      : transformer_(job.transformer),
        rank_program_(rank_program),
        recompute_(stage_of(job, rank_program).recompute.value_or(job.strategy.recompute)),
        recompute_layers_(stage_of(job, rank_program).recompute_layers.value_or(job.transformer.layers)),
        writer_(job, rank_program) {}

  void write() {
    add_parameters();
    // Chunks follow the order in which a micro-batch passes them, so that an output is there when the next chunk
    // needs it.
    const auto chunks = static_cast<int>(rank_program_.chunks.size());
    for (int chunk = 0; chunk < chunks; ++chunk) forward(ChunkId(chunk));
    for (int chunk = chunks - 1; chunk >= 0; --chunk) backward(ChunkId(chunk));
  }

 private:
  const Chunk& chunk() const { return rank_program_.chunks[chunk_]; }
  bool has_layers() const { return chunk().last_layer > chunk().first_layer; }
  // begins(): whether the chunk holds the embedding; ends(): whether it holds the head.
  bool begins() const { return rank_program_.first_stage && chunk_ == ChunkId(); }
  bool ends() const { return rank_program_.last_stage && at(chunk_) + 1 == rank_program_.chunks.size(); }
  // The chunk of this stage that a micro-batch passes just before, or just after; none: another stage has it.
  std::optional<ChunkId> previous_here() const { return chunk_at(rank_program_, chunk().virtual_stage - 1); }
  std::optional<ChunkId> next_here() const { return chunk_at(rank_program_, chunk().virtual_stage + 1); }
  bool receives_input() const { return !begins() && !previous_here(); }
  bool sends_output() const { return !ends() && !next_here(); }

  bool holds(const Parameter& parameter) const {
    if (parameter.layer == -1) {
      const bool used_twice = transformer_.tied_embeddings || transformer_.trained_extra() > 0;
      return rank_program_.first_stage ||
             (used_twice && rank_program_.last_stage && parameter.name == "embedding.token.weight");
    }
    if (parameter.layer >= transformer_.layers) return rank_program_.last_stage;
    for (const Chunk& chunk : rank_program_.chunks)
      if (parameter.layer >= chunk.first_layer && parameter.layer < chunk.last_layer) return true;
    return false;
  }

  void add_parameters() {
    const auto all = parameters(transformer_);
    std::vector<int> held;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (holds(all[i])) held.push_back(static_cast<int>(i));
    writer_.add_parameter_tensors(all, held);
  }

  void enter(Pass pass, ChunkId chunk) {
    chunk_ = chunk;
    writer_.set_block(rank_program_.blocks.add({block_name(rank_program_, pass, chunk), pass, chunk, {}}));
  }

  TensorId chunk_input() {
    if (begins()) {
      writer_.set_layer(-1);
      return embed(writer_, "output");
    }
    return receives_input() ? writer_.boundary(chunk_, TensorUse::chunk_input, TensorRole::activation)
                            : outputs_.at(*previous_here());
  }

  void forward(ChunkId chunk_id) {
    enter(Pass::forward, chunk_id);
    TensorId x = chunk_input();
    for (std::int64_t layer = chunk().first_layer; layer < chunk().last_layer; ++layer) {
      writer_.set_layer(layer);
      const bool leaves = layer + 1 == chunk().last_layer && sends_output();
      kept_[layer] = layer_forward(writer_, x, leaves ? std::optional(chunk_) : std::nullopt);
      x = kept_[layer].output;
    }
    outputs_[chunk_] = x;
    // The chunk has only the embedding, so no layer made its output a boundary.
    if (begins() && !has_layers() && sends_output())
      writer_.make_boundary(x, chunk_, TensorUse::chunk_output);
    if (ends()) predictions_forward(x);
  }

  void predictions_forward(TensorId x) {
    writer_.set_layer(transformer_.layers);
    head_ = head_forward(writer_, x);
    for (std::int64_t k = 0; k < transformer_.trained_extra(); ++k) {
      writer_.set_layer(transformer_.layers + 1 + k);
      extra_.push_back(extra_prediction_forward(writer_, x));
      x = extra_.back().layer.output;
    }
  }

  // Goes back from the losses, of the model and of its further predictions, to the gradient of the head's input.
  TensorId predictions_backward() {
    const std::int64_t layers = chunk().last_layer - chunk().first_layer;
    const Recompute recompute = recompute_layers_ >= layers ? recompute_ : Recompute::none;
    std::optional<TensorId> dx;
    for (std::int64_t k = transformer_.trained_extra() - 1; k >= 0; --k) {
      writer_.set_layer(transformer_.layers + 1 + k);
      dx = extra_prediction_backward(writer_, extra_[at(k)], recompute, dx);
    }
    writer_.set_layer(transformer_.layers);
    return head_backward(writer_, head_, dx);
  }

  TensorId chunk_output_gradient() {
    if (ends()) return predictions_backward();
    return sends_output() ? writer_.boundary(chunk_, TensorUse::chunk_output, TensorRole::activation_gradient)
                          : input_gradients_.at(*next_here());
  }

  void backward(ChunkId chunk_id) {
    enter(Pass::backward, chunk_id);
    TensorId dx = chunk_output_gradient();
    for (std::int64_t layer = chunk().last_layer - 1; layer >= chunk().first_layer; --layer) {
      writer_.set_layer(layer);
      KeptLayer kept = kept_.at(layer);
      if (layer - chunk().first_layer < recompute_layers_) compute_again(writer_, recompute_, kept);
      const bool leaves = layer == chunk().first_layer && receives_input();
      dx = layer_backward(writer_, kept, dx, leaves ? std::optional(chunk_) : std::nullopt);
    }
    input_gradients_[chunk_] = dx;
    // The chunk has only the head, so no layer made its input a boundary.
    if (ends() && !has_layers() && receives_input())
      writer_.make_boundary(dx, chunk_, TensorUse::chunk_input);
    if (!begins() || writer_.frozen(writer_.weights({"embedding.token.weight"})[0])) return;
    writer_.set_layer(-1);
    embed_backward(writer_, dx, "output");
  }

  const Transformer& transformer_;
  RankProgram& rank_program_;
  const Recompute recompute_;
  const std::int64_t recompute_layers_;  // number of layers of each chunk
  KernelWriter writer_;
  ChunkId chunk_;  // the chunk that is being written
  std::map<std::int64_t, KeptLayer> kept_;
  KeptHead head_;
  std::vector<KeptExtraPrediction> extra_;
  std::map<ChunkId, TensorId> outputs_, input_gradients_;  // tensors that chunks of this stage hand over
};

}  // namespace

void build_kernels(const Job& job, Program& program) {
  for (RankProgram& rank_program : program.rank_programs) StageKernels(job, rank_program).write();
}

}  // namespace motley
