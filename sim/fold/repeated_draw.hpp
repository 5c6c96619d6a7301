// ECMP without unfolding. A hash of its ports sends each flow over a spine, so that no two leaves are loaded alike and
// every rank is in a class of its own. A simulation of one rank of each class therefore repeats a draw: leaves that
// would be alike if no flow were hashed choose their spines as one of them does, which stands for all. What hashing
// leaves alike is folded as before. Read next: models/cluster/switches.hpp, sim/fold/fold.hpp.
#pragma once

#include <optional>

#include "models/scenario/job.hpp"

namespace motley {

// The job's cluster with NetworkLayout::models filled in. Nothing: no two leaves that hash their flows would be alike
// without hashing.
std::optional<Cluster> repeat_draw(const Job& job, const Program& program);

}  // namespace motley
