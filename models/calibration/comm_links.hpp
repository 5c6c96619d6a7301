// Links out of what `motley bench comm --json` measured (schema motley.bench_comm/1): the latency and the bandwidth of
// messages inside a host and between hosts, by the same rule as of messages that `motley calibrate --transfers` times.
// Read next: models/calibration/link_fit.hpp.
#pragma once

#include <optional>
#include <string>

#include "models/calibration/link_fit.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

struct CommLinks {
  int hosts = 1, ranks_per_host = 1;
  // Of the path that a run takes: out of memory inside a host, by RDMA between hosts, where these were measured; else
  // TCP. Nothing: no two ranks are so.
  std::optional<LinkFigures> inside_host = {}, between_hosts = {};
  bool uses_rdma = false;    // between hosts
  std::string machine = {};  // the kind of all hosts; empty: they are unlike, or it was not told
};

// Throws Refusal "bad-comm", and those of parse_yaml() and of its readers, with file, line and column.
CommLinks read_comm_links(const std::string& text, const std::string& file);

// Hosts that are alike, whose chips are the ranks. A message takes as long in a simulation as these links say: what the
// simulator adds to each message over a NIC for its software is no part of the NIC's latency. The bandwidths are those
// that were measured, so they are reached in full.
// Assumes: ranks exchange bytes faster inside a host than between hosts.
NodeGroup hosts_with(const Chip& chip, const CommLinks& links);

}  // namespace motley
