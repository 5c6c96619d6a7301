// Whether what real ranks move among themselves goes over the fabric of the scenario, so that the seconds which that
// takes may stand for it. Read next: hw/world/real_ranks.hpp.
#pragma once

#include <map>

#include "hw/world/launched_ranks.hpp"
#include "models/plan/prepare.hpp"

namespace motley {

// Throws Refusal("other-fabric") unless the links of the cluster were measured on machines as those of all real ranks
// that exchange bytes, and such ranks share a host where they share a node of the cluster, and nowhere else. `hosts`:
// where each real rank runs.
// Assumes: hosts of the kind of machine on which links were measured are joined by the network that was measured.
void require_own_fabric(const Prepared& prepared, const std::map<Rank, RankHost>& hosts);

}  // namespace motley
