// The passes of compile(), one in each file. Each reads the Job and extends the Program; compile.cpp gives their
// order.
#pragma once

#include "models/program/account.hpp"
#include "models/program/edit.hpp"
#include "models/scenario/job.hpp"

namespace motley {

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
