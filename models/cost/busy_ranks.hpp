// How many ranks of a node compute at once, and what that does to the measured speeds of their kernels. Read next:
// models/cluster/kernel_rates.hpp.
#pragma once

#include <memory>

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley {

// The cluster with the speeds that its chips have beside the program's ranks; null: `cluster` has them as it is.
// Assumes: all nodes of a group are as busy as the one with the most ranks.
std::shared_ptr<const Cluster> as_busy_as(const Program& program, const Cluster& cluster);

}  // namespace motley
