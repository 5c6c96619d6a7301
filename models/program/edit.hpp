// Operations of passes on a Program: they find streams, blocks, chunks and groups, cut computes and name boundaries.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

// The stream of that kind (and of that chunk, for transfers). stream_of() appends the stream when it is absent.
StreamId stream_of(RankProgram& rank_program, StreamKind kind, ChunkId chunk = {});
std::optional<StreamId> find_stream(const RankProgram& rank_program, StreamKind kind, ChunkId chunk = {});

// The block of that pass and chunk, which must exist.
BlockId block_of(const RankProgram& rank_program, Pass pass, ChunkId chunk);

std::string block_name(const RankProgram& rank_program, Pass pass, ChunkId chunk);

// The slots of groups of that kind in the ranks of the program, in order; group_slot(): the last of them. None: they
// have no such group.
std::vector<GroupSlot> group_slots(const Program& program, RankProgramId rank_program, GroupKind kind);
std::optional<GroupSlot> group_slot(const Program& program, RankProgramId rank_program, GroupKind kind);

// Those of `gradients` that must be summed over the tensor-parallel group, because each rank has only a part of the
// sum: the rows between cut matmuls are divided over the group, or the adapter's other matrix is cut.
std::vector<TensorId> gradients_in_parts(const RankProgram& rank_program, const std::vector<Parameter>& all,
                                         const std::vector<TensorId>& gradients);
// That sum, as an instruction that waits for instruction `after` of the compute stream.
Instruction sum_of_parts(const RankProgram& rank_program, GroupSlot slot, std::vector<TensorId> gradients,
                         int micro_batch, int after);

// A collective over the shard's part, which still lacks its tensors and bytes.
Collective collective_on(const RankProgram& rank_program, ShardId id, CollectiveKind kind, GroupSlot slot);

// Names of a chunk's boundary tensors: "stage.input", "stage.output.gradient", ...; in a program of several chunks
// "stage 5.input" with the number of the virtual stage.
std::string boundary_name(const RankProgram& rank_program, ChunkId chunk, const char* what);
// The input or output tensor of a chunk (TensorUse), or its gradient. None: the boundary crosses no ranks.
std::optional<TensorId> boundary_tensor(const RankProgram& rank_program, ChunkId chunk, TensorUse use,
                                        TensorRole role);
// The chunk that holds that virtual stage. None: this program does not hold it.
std::optional<ChunkId> chunk_at(const RankProgram& rank_program, int virtual_stage);

// Replaces each instruction of the compute stream by its pieces; an instruction without pieces stays. Instructions
// that waited for it wait for its last piece, and later indices move. The pieces' own `after` use the numbering
// before the replacement.
void replace_computes(RankProgram& rank_program, std::vector<std::vector<Instruction>> pieces);

// A point in the compute stream: an instruction, and the number of its block's kernels that are done there.
struct ComputePoint {
  int index = 0, kernels = 0;
  auto operator<=>(const ComputePoint&) const = default;
};
// Cuts the computes at these points. Returns, by point, the index of the piece that ends there.
std::map<ComputePoint, int> cut_computes(RankProgram& rank_program, const std::vector<ComputePoint>& points);

}  // namespace motley
