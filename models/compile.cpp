// The list of passes: the one page to read about what a Program is made of.
#include "models/compile.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {

const std::vector<CompilePass>& compile_passes() {
  static const std::vector<CompilePass> passes = {
      {"place", "which rank is which stage, replica and tensor index, on which chip; peers and groups",
       place},
      {"kernels", "tensors of each stage, kernels of its forward and backward", build_kernels},
      {"divide", "optimizer state, gradients and parameters that replicas divide among them (zero)",
       divide_state},
      {"schedule", "order of forwards and backwards of each stage", schedule_computes},
      {"transfers", "activations and their gradients between stages, on streams of their own", add_transfers},
      {"shards", "parameters gathered before, gradients reduced after each use of a layer (zero 2, 3)",
       add_shard_collectives},
      {"gradients", "reduction of gradients over replicas and tied embeddings", add_gradient_reduction},
      {"optimizer", "the optimizer step, when every gradient is complete", add_optimizer},
      {"offload", "states and activations that the node's memory keeps, and their copies (offload)",
       offload_to_hosts},
      {"separate", "tensor-parallel collectives cut out of computes, unless priced inside them",
       separate_tensor_collectives},
      {"exchanges",
       "forwards and backwards side by side, each computing while the other's tokens travel (overlap)",
       overlap_exchanges},
      {"lifetimes", "what each kernel and instruction allocates and frees", derive_lifetimes},
  };
  return passes;
}

Program compile(const Job& job) {
  validate(job.transformer, job.train, job.strategy);
  Program program;
  for (const CompilePass& pass : compile_passes()) pass.run(job, program);
  return program;
}

int find_stream(const ProgramClass& of_class, StreamKind kind, int chunk) {
  for (std::size_t i = 0; i < of_class.streams.size(); ++i)
    if (of_class.streams[i].kind == kind && of_class.streams[i].chunk == chunk) return static_cast<int>(i);
  return -1;
}

int stream_of(ProgramClass& of_class, StreamKind kind, int chunk) {
  const int found = find_stream(of_class, kind, chunk);
  if (found >= 0) return found;
  of_class.streams.push_back({kind, chunk, {}});
  return static_cast<int>(of_class.streams.size()) - 1;
}

int block_of(const ProgramClass& of_class, Pass pass, int chunk) {
  for (std::size_t i = 0; i < of_class.blocks.size(); ++i)
    if (of_class.blocks[i].pass == pass && of_class.blocks[i].chunk == chunk) return static_cast<int>(i);
  MOTLEY_CHECK(!"no such block");
  return -1;
}

int group_slot(const Program& program, std::int32_t of_class, GroupKind kind) {
  for (const RankEntry& entry : program.ranks) {
    if (entry.of_class != of_class) continue;
    for (std::size_t slot = entry.groups.size(); slot-- > 0;)
      if (entry.groups[slot] >= 0 &&
          program.groups[static_cast<std::size_t>(entry.groups[slot])].kind == kind)
        return static_cast<int>(slot);
    return -1;
  }
  return -1;
}

std::vector<std::int32_t> gradients_in_parts(const ProgramClass& of_class, const std::vector<Parameter>& all,
                                             const std::vector<std::int32_t>& gradients) {
  std::vector<std::int32_t> found;
  if (of_class.tensor_parallel == 1) return found;
  for (const std::int32_t id : gradients) {
    const Parameter& parameter =
        all[static_cast<std::size_t>(of_class.tensors[static_cast<std::size_t>(id)].parameter)];
    if (parameter.adapter ? parameter.cut == Cut::replicated
                          : of_class.sequence_parallel && parameter.by_rows)
      found.push_back(id);
  }
  return found;
}

Instruction sum_of_parts(const ProgramClass& of_class, int slot, std::vector<std::int32_t> gradients,
                         int micro_batch, int after) {
  Instruction sum;
  sum.op = Op::collective;
  sum.slot = slot;
  sum.micro_batch = micro_batch;
  for (const std::int32_t id : gradients) sum.bytes += of_class.tensors[static_cast<std::size_t>(id)].bytes;
  sum.tensors = std::move(gradients);
  sum.after = {{0, after}};
  return sum;
}

std::string block_name(const ProgramClass& of_class, Pass pass, int chunk) {
  std::string name(name_of(pass));
  if (of_class.chunks.size() > 1) name += fmt::format(" {}", chunk);
  return name;
}

std::string boundary_name(const ProgramClass& of_class, int chunk, const char* what) {
  if (of_class.chunks.size() == 1) return fmt::format("stage.{}", what);
  return fmt::format("stage {}.{}", of_class.chunks[static_cast<std::size_t>(chunk)].virtual_stage, what);
}

int chunk_at(const ProgramClass& of_class, int virtual_stage) {
  for (std::size_t i = 0; i < of_class.chunks.size(); ++i)
    if (of_class.chunks[i].virtual_stage == virtual_stage) return static_cast<int>(i);
  return -1;
}

std::map<ComputePoint, int> cut_computes(ProgramClass& of_class, const std::vector<ComputePoint>& points) {
  std::map<int, std::vector<int>> cuts;  // kernels, by instruction
  for (const ComputePoint& point : points) cuts[point.index].push_back(point.kernels);
  std::map<ComputePoint, int> ends;
  std::vector<std::vector<Instruction>> pieces(of_class.streams[0].instructions.size());
  int more = 0;  // pieces that earlier cuts added
  for (auto& [index, at_kernels] : cuts) {
    const Instruction& whole = of_class.streams[0].instructions[static_cast<std::size_t>(index)];
    at_kernels.push_back(whole.last_kernel);
    std::sort(at_kernels.begin(), at_kernels.end());
    at_kernels.erase(std::unique(at_kernels.begin(), at_kernels.end()), at_kernels.end());
    auto& made = pieces[static_cast<std::size_t>(index)];
    int first = whole.first_kernel;
    for (int cut : at_kernels) {
      if (cut <= first) continue;  // where it begins anyway
      Instruction piece = whole;
      if (!made.empty()) piece.after.clear();
      piece.first_kernel = first;
      piece.last_kernel = first = cut;
      ends[{index, cut}] = index + more + static_cast<int>(made.size());
      made.push_back(piece);
    }
    MOTLEY_CHECK(!made.empty());
    more += static_cast<int>(made.size()) - 1;
  }
  replace_computes(of_class, std::move(pieces));
  return ends;
}

void replace_computes(ProgramClass& of_class, std::vector<std::vector<Instruction>> pieces) {
  auto& computes = of_class.streams[0].instructions;
  MOTLEY_CHECK(pieces.size() == computes.size());
  std::vector<Instruction> replaced;
  std::vector<int> last(computes.size());  // of the pieces of each
  for (std::size_t i = 0; i < computes.size(); ++i) {
    if (pieces[i].empty()) pieces[i].push_back(std::move(computes[i]));
    for (Instruction& piece : pieces[i]) replaced.push_back(std::move(piece));
    last[i] = static_cast<int>(replaced.size()) - 1;
  }
  computes = std::move(replaced);
  for (Stream& stream : of_class.streams)
    for (Instruction& instruction : stream.instructions)
      for (After& after : instruction.after)
        if (after.stream == 0) after.index = last[static_cast<std::size_t>(after.index)];
}

}  // namespace motley
