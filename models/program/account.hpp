// Counts the bytes that the instructions of a Program allocate and free, from the tensors of their kernels.
#pragma once

#include "models/program/program.hpp"

namespace motley {

// Fills Instruction::allocated, freed and peak of every instruction from the tensors of its kernels.
void account_bytes(RankProgram& rank_program);

// Refuses ("too-large") tensors whose bytes, with those of all micro-batches, cannot be added up.
void refuse_uncountable(const RankProgram& rank_program);

}  // namespace motley
