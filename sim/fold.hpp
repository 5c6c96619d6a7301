// Folding: tensor-parallel peers that must behave alike are simulated once, by their tensor_index 0. A private link
// keeps its bandwidth, a link that k peers share gives the one its k-th part. Only what is proved alike is folded:
// peers on one node whose every transfer crosses links of equal bandwidth with equal sharing; all else is refused.
// Read next: sim/fabric.hpp.
#pragma once

#include "models/cluster.hpp"
#include "models/program.hpp"
#include "sim/fabric.hpp"

namespace motley {

// Throws Refusal(infeasible, "unfoldable") with the reason.
Fabric::Shares fold_tensor_parallel(const Program& program, const Cluster& cluster);

// The ranks that are simulated: all, or tensor_index 0 of each set of peers.
bool stands_for_peers(const Program& program, Rank rank);

}  // namespace motley
