// Measures what jobs that offload need of this host: how fast a rank copies between the memory that stands for a chip's
// and that of its host, and how fast the host steps optimizers. Small jobs really train, as many ranks at once as will.
// Read next: tools/commands/runs.hpp, models/cluster/cluster.hpp (Host).
#pragma once

#include <cstdint>
#include <optional>

#include "models/cluster/cluster.hpp"

namespace motley {

struct CopyFit {
  Host host;  // memory: what this host has; link and memory_bandwidth: measured
  std::int64_t copies = 0, steps = 0;
  // |predicted - measured| of all of them, as a share of the seconds that all took.
  double copies_error = 0, steps_error = 0;
};

// `node`: a node group of this host, whose chips are the ranks. `times`: how often each job runs. None: no copy or no
// step took any time.
std::optional<CopyFit> measure_copies(const NodeGroup& node, std::int64_t times);

}  // namespace motley
