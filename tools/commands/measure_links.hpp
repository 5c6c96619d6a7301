// Measures how fast this host's ranks exchange bytes: small jobs really train on two ranks and are simulated as well, and
// the latency and bandwidth of the fabric inside a node are those with which the simulated transfers take as long as the
// real ones. Read next: tools/commands/runs.hpp, models/calibration/relative_fit.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/cluster/cluster.hpp"

namespace motley {

struct TransferErrors {
  std::string kind;  // "all_reduce", "recv"
  std::int64_t transfers = 0;
  double mean_error = 0;  // |predicted / measured - 1|
};

struct LinkFit {
  double latency_s = 0, bytes_per_s = 0;
  std::int64_t transfers = 0;
  double mean_error = 0, worst_error = 0;
  std::optional<double> held_out_mean, held_out_worst;  // each transfer predicted by a fit to others
  std::vector<TransferErrors> by_kind;
};

// `node`: a node group of this host, whose chips are the ranks. `times`: how often each job runs.
// Assumes: what a transfer takes is a number of latencies and a number of bytes at the bandwidth, as the simulator
// counts them.
LinkFit measure_links(const NodeGroup& node, std::int64_t times);

}  // namespace motley
