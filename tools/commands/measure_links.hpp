// Measures how fast two ranks exchange bytes: small jobs really train on two ranks and are simulated as well,
// and the latency and bandwidth of the links that join them are those with which the simulated transfers take as long
// as the real ones. Read next: tools/commands/runs.hpp, models/calibration/link_fit.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "models/calibration/link_fit.hpp"
#include "models/cluster/cluster.hpp"
#include "models/plan/prepare.hpp"
#include "models/trace/trace.hpp"

namespace motley {

// Really runs a job for some steps. Returns the trace of the last one; nothing on other ranks than the first.
using RunForReal =
    std::function<std::optional<Trace>(const Prepared& prepared, const std::string& path, int steps)>;

// `node`: a node group of two ranks or more on one node, or of two nodes with a rank each, whose NICs then join them.
// `times`: how often each job runs. Nothing: this is not the first rank, or the transfers fit no latency and bandwidth.
std::optional<LinkFit> measure_links(const NodeGroup& node, std::int64_t times, const RunForReal& run);

// Sets the latency and the bandwidth of the links that join the ranks of `node`.
void set_links(NodeGroup& node, double latency_s, double bytes_per_s);

}  // namespace motley
