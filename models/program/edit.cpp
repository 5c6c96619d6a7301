#include "models/program/edit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/base/refusal.hpp"

namespace motley {

std::optional<StreamId> find_stream(const RankProgram& rank_program, StreamKind kind, ChunkId chunk) {
  for (StreamId id : rank_program.streams.ids())
    if (rank_program.streams[id].kind == kind && rank_program.streams[id].chunk == chunk) return id;
  return std::nullopt;
}

StreamId stream_of(RankProgram& rank_program, StreamKind kind, ChunkId chunk) {
  if (const auto stream = find_stream(rank_program, kind, chunk)) return *stream;
  return rank_program.streams.add({kind, chunk, {}});
}

BlockId block_of(const RankProgram& rank_program, Pass pass, ChunkId chunk) {
  for (BlockId id : rank_program.blocks.ids())
    if (rank_program.blocks[id].pass == pass && rank_program.blocks[id].chunk == chunk) return id;
  MOTLEY_CHECK(!"no such block");
  return {};
}

std::vector<GroupSlot> group_slots(const Program& program, RankProgramId rank_program, GroupKind kind) {
  std::vector<GroupSlot> slots;
  for (const RankEntry& entry : program.ranks) {
    if (entry.rank_program != rank_program) continue;
    for (const GroupSlot slot : entry.groups.ids())
      if (const auto& group = entry.groups[slot]; group && program.groups[*group].kind == kind)
        slots.push_back(slot);
    break;
  }
  return slots;
}

std::optional<GroupSlot> group_slot(const Program& program, RankProgramId rank_program, GroupKind kind) {
  const std::vector<GroupSlot> slots = group_slots(program, rank_program, kind);
  return slots.empty() ? std::nullopt : std::optional(slots.back());
}

std::vector<TensorId> gradients_in_parts(const RankProgram& rank_program, const std::vector<Parameter>& all,
                                         const std::vector<TensorId>& gradients) {
  std::vector<TensorId> in_parts;
  if (rank_program.tensor_parallel == 1) return in_parts;
  for (TensorId id : gradients) {
    const Parameter& parameter = all[at(rank_program.tensors[id].parameter.value())];
    if (parameter.adapter ? parameter.cut == Cut::replicated
                          : rank_program.sequence_parallel && parameter.by_rows)
      in_parts.push_back(id);
  }
  return in_parts;
}

Collective collective_on(const RankProgram& rank_program, ShardId id, CollectiveKind kind, GroupSlot slot) {
  const Shard& shard = rank_program.shards[id];
  Collective collective;
  collective.kind = kind;
  collective.slot = slot;
  collective.shard = id;
  collective.part = shard.part;
  collective.parts = shard.parts;
  return collective;
}

Instruction sum_of_parts(const RankProgram& rank_program, GroupSlot slot, std::vector<TensorId> gradients,
                         int micro_batch, int after) {
  Collective sum;
  sum.slot = slot;
  for (TensorId id : gradients) sum.bytes += rank_program.tensors[id].bytes;
  sum.tensors = std::move(gradients);
  Instruction instruction;
  instruction.body = std::move(sum);
  instruction.micro_batch = micro_batch;
  instruction.after = {{kComputeStream, after}};
  return instruction;
}

std::string block_name(const RankProgram& rank_program, Pass pass, ChunkId chunk) {
  std::string name(name_of(pass));
  if (rank_program.chunks.size() > 1) name += fmt::format(" {}", chunk);
  return name;
}

std::string boundary_name(const RankProgram& rank_program, ChunkId chunk, const char* what) {
  if (rank_program.chunks.size() == 1) return fmt::format("stage.{}", what);
  return fmt::format("stage {}.{}", rank_program.chunks[chunk].virtual_stage, what);
}

std::optional<TensorId> boundary_tensor(const RankProgram& rank_program, ChunkId chunk, TensorUse use,
                                        TensorRole role) {
  for (TensorId id : rank_program.tensors.ids()) {
    const Tensor& tensor = rank_program.tensors[id];
    if (tensor.use == use && tensor.chunk == chunk && tensor.role == role) return id;
  }
  return std::nullopt;
}

std::optional<ChunkId> chunk_at(const RankProgram& rank_program, int virtual_stage) {
  // compile() numbers the chunks of a stage in ascending order of their virtual stages; an edited text may not.
  const auto& chunks = rank_program.chunks.items();
  const auto first =
      std::lower_bound(chunks.begin(), chunks.end(), virtual_stage,
                       [](const Chunk& chunk, int stage) { return chunk.virtual_stage < stage; });
  if (first != chunks.end() && first->virtual_stage == virtual_stage) return ChunkId(first - chunks.begin());
  for (ChunkId id : rank_program.chunks.ids())
    if (rank_program.chunks[id].virtual_stage == virtual_stage) return id;
  return std::nullopt;
}

std::map<ComputePoint, int> cut_computes(RankProgram& rank_program, const std::vector<ComputePoint>& points) {
  std::map<int, std::vector<int>> cuts;  // cuts by instruction: numbers of kernels
  for (const ComputePoint& point : points) cuts[point.index].push_back(point.kernels);
  std::map<ComputePoint, int> ends;
  const std::vector<Instruction>& computes = rank_program.streams[kComputeStream].instructions;
  std::vector<std::vector<Instruction>> pieces(computes.size());
  int more = 0;  // pieces that earlier cuts added
  for (auto& [index, at_kernels] : cuts) {
    const Instruction& whole = computes[at(index)];
    const auto& compute = std::get<Compute>(whole.body);
    at_kernels.push_back(compute.last_kernel);
    std::sort(at_kernels.begin(), at_kernels.end());
    at_kernels.erase(std::unique(at_kernels.begin(), at_kernels.end()), at_kernels.end());
    auto& of_whole = pieces[at(index)];
    int first = compute.first_kernel;
    for (int cut : at_kernels) {
      if (cut <= first) continue;  // a piece begins there anyway
      Instruction piece = whole;
      if (!of_whole.empty()) piece.after.clear();
      piece.body = Compute{compute.block, first, cut};
      first = cut;
      ends[{index, cut}] = index + more + static_cast<int>(of_whole.size());
      of_whole.push_back(std::move(piece));
    }
    MOTLEY_CHECK(!of_whole.empty());
    more += static_cast<int>(of_whole.size()) - 1;
  }
  replace_computes(rank_program, std::move(pieces));
  return ends;
}

void replace_computes(RankProgram& rank_program, std::vector<std::vector<Instruction>> pieces) {
  auto& computes = rank_program.streams[kComputeStream].instructions;
  MOTLEY_CHECK(pieces.size() == computes.size());
  std::size_t count = 0;
  for (const std::vector<Instruction>& each : pieces) count += std::max<std::size_t>(each.size(), 1);
  std::vector<Instruction> replaced;
  replaced.reserve(count);
  std::vector<int> last(computes.size());  // index of the last piece of each instruction
  for (std::size_t i = 0; i < computes.size(); ++i) {
    if (pieces[i].empty()) pieces[i].push_back(std::move(computes[i]));
    for (Instruction& piece : pieces[i]) replaced.push_back(std::move(piece));
    last[i] = static_cast<int>(replaced.size()) - 1;
  }
  computes = std::move(replaced);
  for (Stream& stream : rank_program.streams)
    for (Instruction& instruction : stream.instructions)
      for (After& after : instruction.after)
        if (after.stream == kComputeStream) after.index = last[at(after.index)];
}

}  // namespace motley
