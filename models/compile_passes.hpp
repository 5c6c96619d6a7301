// The passes of compile(), one a file. Each reads the Job and extends the Program; their order stands in compile.cpp.
#pragma once

#include "models/compile.hpp"

namespace motley {

void place(const Job& job, Program& program);                        // compile_place.cpp
void build_kernels(const Job& job, Program& program);                // compile_kernels.cpp
void schedule_computes(const Job& job, Program& program);            // compile_schedule.cpp
void add_transfers(const Job& job, Program& program);                // compile_transfers.cpp
void add_gradient_reduction(const Job& job, Program& program);       // compile_gradients.cpp
void add_optimizer(const Job& job, Program& program);                // compile_gradients.cpp
void separate_tensor_collectives(const Job& job, Program& program);  // compile_separate.cpp
void derive_lifetimes(const Job& job, Program& program);             // compile_lifetimes.cpp

// The stream of that kind; added at the end (the compute stream first) when absent. Returns its index.
int stream_of(ProgramClass& of_class, StreamKind kind);
int find_stream(const ProgramClass& of_class, StreamKind kind);  // -1: none

// Index in streams[0] of the compute of this pass and micro-batch: the last piece where it is cut in several.
int find_compute(const ProgramClass& of_class, Pass pass, int micro_batch);

// Replaces instruction `index` of the compute stream by `pieces`; events of it become events of the last piece,
// later indices move. The pieces' own `after` must be in the numbering after the replacement.
void replace_compute(ProgramClass& of_class, int index, const std::vector<Instruction>& pieces);

}  // namespace motley
