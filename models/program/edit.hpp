// What passes do to a Program: find its streams, blocks, chunks and groups, cut its computes, name its boundaries.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

// The stream of that kind (and chunk, of transfers); stream_of() adds it at the end when it is absent.
StreamId stream_of(RankProgram& rank_program, StreamKind kind, ChunkId chunk = {});
std::optional<StreamId> find_stream(const RankProgram& rank_program, StreamKind kind, ChunkId chunk = {});

// The block of that pass and chunk; there must be one.
BlockId block_of(const RankProgram& rank_program, Pass pass, ChunkId chunk);

std::string block_name(const RankProgram& rank_program, Pass pass, ChunkId chunk);

// The last group slot of that kind that ranks of the program have.
std::optional<GroupSlot> group_slot(const Program& program, RankProgramId rank_program, GroupKind kind);

// Those of `gradients` of which each rank of a tensor-parallel group has a part alone, as the rows between cut matmuls
// are divided over it, or an adapter's other matrix is: they are to be summed over the group.
std::vector<TensorId> gradients_in_parts(const RankProgram& rank_program, const std::vector<Parameter>& all,
                                         const std::vector<TensorId>& gradients);
// That sum; after the instruction `after` of the compute stream.
Instruction sum_of_parts(const RankProgram& rank_program, GroupSlot slot, std::vector<TensorId> gradients,
                         int micro_batch, int after);

// What a chunk takes in and gives out, and their gradients: "stage.input", "stage.output.gradient", ...; in a program
// of several chunks "stage 5.input" with the number of the virtual stage.
std::string boundary_name(const RankProgram& rank_program, ChunkId chunk, const char* what);
// The tensor that a chunk takes in or gives out (TensorUse), or its gradient; none: nothing crosses ranks there.
std::optional<TensorId> boundary_tensor(const RankProgram& rank_program, ChunkId chunk, TensorUse use,
                                        TensorRole role);
// The chunk that holds that virtual stage; none: another rank does, or nobody.
std::optional<ChunkId> chunk_at(const RankProgram& rank_program, int virtual_stage);

// Replaces each instruction of the compute stream by its pieces; no pieces: it stays. Events of it become events of the
// last piece, later indices move. The pieces' own `after` are in the numbering before the replacement.
void replace_computes(RankProgram& rank_program, std::vector<std::vector<Instruction>> pieces);

// Where in the compute stream something is complete: an instruction, and how many of its block's kernels it takes.
struct ComputePoint {
  int index = 0, kernels = 0;
  auto operator<=>(const ComputePoint&) const = default;
};
// Cuts the computes at these points; returns the index of the piece that ends at each.
std::map<ComputePoint, int> cut_computes(RankProgram& rank_program, const std::vector<ComputePoint>& points);

}  // namespace motley
