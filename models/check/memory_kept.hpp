// What the software on a chip keeps in memory differently from the Program: scores of attention that is not fused,
// masks of dropout, several copies of logits, no copy of divided parameters beside their master weights, or no master
// weights. Figures of a chip give the bytes (platforms/kept/ has them by software); host ranks, which really run,
// have none of this. Experts' rows are counted as an accelerator's software allocates them, and rows that are gathered
// for narrow matmuls as it keeps them: in the narrow format.
// It does not change times. Read next: models/check/check.hpp.
#pragma once

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley {

bool keeps_otherwise(const Program& program, const Cluster& cluster);

// Returns the Program with tensors as large as that software keeps them, and with the bytes that instructions then
// allocate and free. The result is for counting, not for running.
//
// Scores of attention live as long as the tensors that its backward needs; in a recomputed layer only in its
// backward. Masks live as long as the sum after attention, which the norm of the feed-forward part needs. Logits
// beyond the Program's live during the backward of the loss. Gradients of layers' weights that nobody reads live
// throughout.
// Assumes: the ranks of a program stand on chips with the same software.
Program as_kept(Program program, const Cluster& cluster);

}  // namespace motley
