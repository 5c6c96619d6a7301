// What the software on a chip keeps in memory otherwise than a Program has it: scores of attention that is not fused,
// masks of dropout, logits in several copies, no copy of divided parameters beside their master weights, or no master
// weights. Figures of a chip say how many bytes (platforms/kept/ has them by software); host ranks, which really run,
// have none of them. It says nothing of time. Read next: models/check/check.hpp.
#pragma once

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley {

bool keeps_otherwise(const Cluster& cluster);

// The Program with tensors as large as that software keeps them, and what instructions allocate and free accordingly;
// it is to be counted, not to be run.
//
// Attention's scores live as long as what its backward needs of it, so of a recomputed layer in its backward alone;
// masks as long as the sum behind attention, that the feed-forward part's norm needs; logits beyond the Program's from
// the loss's backward's begin to its end.
// Gradients nobody reads, of layers' weights, lie there throughout.
// Assumes: the ranks of a class stand on chips of the same software.
Program as_kept(Program program, const Cluster& cluster);

}  // namespace motley
