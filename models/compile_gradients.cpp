// Passes "gradients" and "optimizer": after the last backward the gradients are summed over replicas (one all-reduce
// after it, or bucket by bucket while it still runs), then tied embeddings over the first and last stage, then AdamW.
#include <algorithm>
#include <cstdint>
#include <map>

#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

struct Bucket {
  int last_kernel = 0;  // the gradients are complete once kernels [0, last_kernel) have run
  std::vector<std::int32_t> gradients;
  std::int64_t bytes = 0;
};

// Gradient tensor of each parameter tensor.
std::map<int, int> gradients_of(const ProgramClass& of_class) {
  std::map<int, int> by_parameter, result;
  for (std::size_t i = 0; i < of_class.tensors.size(); ++i)
    if (of_class.tensors[i].role == TensorRole::gradient)
      by_parameter[of_class.tensors[i].parameter] = static_cast<int>(i);
  for (std::size_t i = 0; i < of_class.tensors.size(); ++i)
    if (of_class.tensors[i].role == TensorRole::parameter)
      result[static_cast<int>(i)] = by_parameter.at(of_class.tensors[i].parameter);
  return result;
}

// Gradients by the kernel that completes them; a bucket closes at the end of a layer once it holds bucket_bytes.
std::vector<Bucket> buckets_of(const ProgramClass& of_class, std::int64_t bucket_bytes) {
  const auto& kernels = of_class.blocks[1].kernels;
  const auto gradient = gradients_of(of_class);
  std::map<int, int> completed_by;  // parameter tensor -> kernel; kernels that only read a weight do no harm
  for (std::size_t i = 0; i < kernels.size(); ++i)
    for (int parameter : kernels[i].parameters) completed_by[parameter] = static_cast<int>(i);
  std::vector<Bucket> buckets;
  Bucket open;
  for (int i = 0; i < static_cast<int>(kernels.size()); ++i) {
    for (const auto& [parameter, kernel] : completed_by)
      if (kernel == i) {
        open.gradients.push_back(gradient.at(parameter));
        open.bytes += of_class.tensors[static_cast<std::size_t>(gradient.at(parameter))].bytes;
      }
    const bool last = i + 1 == static_cast<int>(kernels.size());
    const bool layer_ends =
        last || kernels[static_cast<std::size_t>(i) + 1].layer != kernels[static_cast<std::size_t>(i)].layer;
    if (!open.gradients.empty() && (last || (layer_ends && open.bytes >= bucket_bytes))) {
      open.last_kernel = i + 1;
      buckets.push_back(open);
      open = {};
    }
  }
  MOTLEY_CHECK(open.gradients.empty());
  return buckets;
}

Instruction reduction(int slot, const std::vector<std::int32_t>& gradients, std::int64_t bytes, int after) {
  Instruction made;
  made.op = Op::collective;
  made.slot = slot;
  made.tensors = gradients;
  made.bytes = bytes;
  made.after = {{0, after}};
  return made;
}

// Cuts the last backward where buckets are complete; returns the compute index of each bucket's last kernel.
std::vector<int> cut_last_backward(ProgramClass& of_class, const std::vector<Bucket>& buckets) {
  const int index = static_cast<int>(of_class.streams[0].instructions.size()) - 1;
  const Instruction whole = of_class.streams[0].instructions.back();
  MOTLEY_CHECK(whole.block == 1);
  std::vector<Instruction> pieces;
  std::vector<int> ends;
  int first = 0;
  for (const Bucket& bucket : buckets) {
    Instruction piece = whole;
    if (!pieces.empty()) piece.after.clear();
    piece.first_kernel = first;
    piece.last_kernel = first = bucket.last_kernel;
    ends.push_back(index + static_cast<int>(pieces.size()));
    pieces.push_back(piece);
  }
  replace_compute(of_class, index, pieces);
  return ends;
}

void reduce_over_replicas(const Job& job, ProgramClass& of_class) {
  const bool overlap = job.strategy.overlap_gradients;
  const auto buckets = buckets_of(of_class, overlap ? job.strategy.bucket_bytes : INT64_MAX);
  const auto ends = cut_last_backward(of_class, buckets);
  const auto stream = static_cast<std::size_t>(stream_of(of_class, StreamKind::collective));
  for (std::size_t i = 0; i < buckets.size(); ++i)
    of_class.streams[stream].instructions.push_back(
        reduction(kDataGroup, buckets[i].gradients, buckets[i].bytes, ends[i]));
}

void reduce_tied_embedding(ProgramClass& of_class) {
  const auto stream = static_cast<std::size_t>(stream_of(of_class, StreamKind::collective));
  for (std::size_t i = 0; i < of_class.tensors.size(); ++i) {
    const Tensor& tensor = of_class.tensors[i];
    if (tensor.role == TensorRole::gradient && tensor.name == "embedding.token.weight.gradient")
      of_class.streams[stream].instructions.push_back(
          reduction(kEmbeddingGroup, {static_cast<std::int32_t>(i)}, tensor.bytes,
                    static_cast<int>(of_class.streams[0].instructions.size()) - 1));
  }
}

}  // namespace

void add_gradient_reduction(const Job& job, Program& program) {
  for (ProgramClass& of_class : program.classes) {
    if (job.strategy.dp() > 1) reduce_over_replicas(job, of_class);
    const bool ties = job.transformer.tied_embeddings && job.strategy.pp() > 1;
    if (ties && (of_class.first_stage || of_class.last_stage)) reduce_tied_embedding(of_class);
  }
}

void add_optimizer(const Job&, Program& program) {
  for (ProgramClass& of_class : program.classes) {
    Instruction step;
    step.op = Op::optimizer;
    const int reduced = find_stream(of_class, StreamKind::collective);
    if (reduced >= 0)
      step.after.push_back(
          {static_cast<std::int16_t>(reduced),
           static_cast<int>(of_class.streams[static_cast<std::size_t>(reduced)].instructions.size()) - 1});
    of_class.streams[0].instructions.push_back(step);
  }
}

}  // namespace motley
