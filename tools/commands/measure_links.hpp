// Measures how fast this host's ranks exchange bytes: small jobs really train on two ranks and are simulated as well,
// and the latency and bandwidth of the fabric inside a node are those with which the simulated transfers take as long
// as the real ones. Read next: tools/commands/runs.hpp, models/calibration/link_fit.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "models/calibration/link_fit.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

// `node`: a node group of this host, whose chips are the ranks. `times`: how often each job runs.
std::optional<LinkFit> measure_links(const NodeGroup& node, std::int64_t times);

}  // namespace motley
