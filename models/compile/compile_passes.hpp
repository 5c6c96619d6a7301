// The passes of compile(), one in each file. Each reads the Job and extends the Program; compile.cpp gives their
// order.
#pragma once

#include <optional>
#include <vector>

#include "models/program/account.hpp"
#include "models/program/edit.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// The stage that holds the virtual stage `neighbour`; none: it does not exist, or the stage of `virtual_stage` holds
// it. `all`: the pipeline's virtual stages.
std::optional<int> stage_beside(const std::vector<VirtualStage>& all, int virtual_stage, int neighbour);

// Whether a rank is sent parts of the chunk's input, or of the gradient of its output, and its tensor-parallel group
// gathers the whole. `kind`: activation_gather or gradient_gather.
bool gathers(const Job& job, const RankProgram& rank_program, ChunkId chunk, GroupKind kind);

// Ranks on their chips, without the groups that place() adds to them.
void place_stages(const Job& job, Program& program);                 // place.cpp
void place(const Job& job, Program& program);                        // place.cpp
void build_kernels(const Job& job, Program& program);                // kernels.cpp
void divide_state(const Job& job, Program& program);                 // divide.cpp
void schedule_computes(const Job& job, Program& program);            // schedule.cpp
void add_transfers(const Job& job, Program& program);                // transfers.cpp
void add_shard_collectives(const Job& job, Program& program);        // shards.cpp
void add_gradient_reduction(const Job& job, Program& program);       // gradients.cpp
void add_optimizer(const Job& job, Program& program);                // optimizer.cpp
void offload_to_hosts(const Job& job, Program& program);             // offload.cpp
void separate_tensor_collectives(const Job& job, Program& program);  // separate.cpp
void overlap_exchanges(const Job& job, Program& program);            // exchanges.cpp
void derive_lifetimes(const Job& job, Program& program);             // lifetimes.cpp

}  // namespace motley
