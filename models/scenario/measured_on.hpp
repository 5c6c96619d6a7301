// The clusters on which a software was measured, the key `measured` of a file of platforms/software. A prediction for
// another cluster is not calibrated. Read next: models/scenario/software.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

// Where a software was measured: the nodes and the most chips of its runs.
struct MeasuredOn {
  std::string chip;
  int chips_per_node = 0;
  NicKind nic = NicKind::infiniband;
  double bandwidth_a_chip =
      0;                   // bytes/s of a node's NICs, divided by its chips; 0: the runs were in one node
  std::int64_t chips = 0;  // of the largest run
  bool operator==(const MeasuredOn&) const = default;
};
// The first group of the cluster as a place of measurement.
MeasuredOn measured_on(const Cluster& cluster);
// Whether some runs were on such nodes, and not on far fewer: at least half as many chips, NICs of the same kind with
// nearly the same bandwidth. What is inside of a node does not depend on its NICs.
bool was_measured(const std::vector<MeasuredOn>& measured, const Cluster& cluster);
// The lines of a file's `measured`, each as {chip, chips_per_node, nic, bandwidth, chips}.
std::vector<MeasuredOn> read_measured_on(const Yaml& node);
std::string print(const std::vector<MeasuredOn>& measured);

}  // namespace motley
