// The passes of compile(), one a file. Each reads the Job and extends the Program; their order stands in compile.cpp.
#pragma once

#include <map>

#include "models/compile.hpp"

namespace motley {

void place(const Job& job, Program& program);                        // compile_place.cpp
void build_kernels(const Job& job, Program& program);                // compile_kernels.cpp
void divide_state(const Job& job, Program& program);                 // compile_shards.cpp
void schedule_computes(const Job& job, Program& program);            // compile_schedule.cpp
void add_transfers(const Job& job, Program& program);                // compile_transfers.cpp
void add_shard_collectives(const Job& job, Program& program);        // compile_shards.cpp
void add_gradient_reduction(const Job& job, Program& program);       // compile_gradients.cpp
void add_optimizer(const Job& job, Program& program);                // compile_gradients.cpp
void offload_to_hosts(const Job& job, Program& program);             // compile_offload.cpp
void separate_tensor_collectives(const Job& job, Program& program);  // compile_separate.cpp
void overlap_exchanges(const Job& job, Program& program);            // compile_exchanges.cpp
void derive_lifetimes(const Job& job, Program& program);             // compile_lifetimes.cpp

// Of every instruction, what it allocates and frees and the most that it holds between, from its kernels' tensors.
void account_bytes(ProgramClass& of_class);  // compile_lifetimes.cpp

// The stream of that kind (and chunk, of transfers); added at the end when absent. Returns its index.
int stream_of(ProgramClass& of_class, StreamKind kind, int chunk = 0);
int find_stream(const ProgramClass& of_class, StreamKind kind, int chunk = 0);  // -1: none

// Index into the class's blocks; there must be one.
int block_of(const ProgramClass& of_class, Pass pass, int chunk);

std::string block_name(const ProgramClass& of_class, Pass pass, int chunk);

// The last group slot of that kind that ranks of the class have; -1: none.
int group_slot(const Program& program, std::int32_t of_class, GroupKind kind);

// Of these gradients those of which each rank of a tensor-parallel group has a part alone, as the rows between cut
// matmuls are divided over it, or an adapter's other matrix is: they are to be summed over the group.
std::vector<std::int32_t> gradients_in_parts(const ProgramClass& of_class, const std::vector<Parameter>& all,
                                             const std::vector<std::int32_t>& gradients);
// That sum; after the instruction `after` of the compute stream.
Instruction sum_of_parts(const ProgramClass& of_class, int slot, std::vector<std::int32_t> gradients,
                         int micro_batch, int after);

// What a chunk takes in and gives out, and their gradients: "stage.input", "stage.output.gradient", ...; in a class of
// several chunks "stage 5.input" with the number of the virtual stage.
std::string boundary_name(const ProgramClass& of_class, int chunk, const char* what);
// The chunk of this class that holds that virtual stage; -1: another rank does, or nobody.
int chunk_at(const ProgramClass& of_class, int virtual_stage);

// Replaces each instruction of the compute stream by its pieces; no pieces: it stays. Events of it become events of the
// last piece, later indices move. The pieces' own `after` are in the numbering before the replacement.
void replace_computes(ProgramClass& of_class, std::vector<std::vector<Instruction>> pieces);

// Where in the compute stream something is complete: an instruction, and how many of its block's kernels it takes.
struct ComputePoint {
  int index = 0, kernels = 0;
  auto operator<=>(const ComputePoint&) const = default;
};
// Cuts the computes at these points; returns the index of the piece that ends at each.
std::map<ComputePoint, int> cut_computes(ProgramClass& of_class, const std::vector<ComputePoint>& points);

}  // namespace motley
