// The rates and latencies of a cluster that better parts could improve, each as a change of the Cluster. Their gain
// is not known here: models/explain simulates the changed job. Read next: models/explain/explain.hpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/base/units.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct Lever {
  std::string what;   // "chip FLOP/s", "roce bandwidth"
  std::string where;  // "ib (a100-80gb-sxm)", "NICs of ib", "east - west"
  // Names of the thing, "nic/ib/roce", by which parts of a path tell what would shorten them. Latencies have none.
  std::vector<std::string> keys;
  double value = 0;                                                  // 0: several things that differ
  std::optional<Dimension> dimension = Dimension::bytes_per_second;  // nothing: a plain number
  bool in_bits = false;  // a rate that people give in bits, as for networks between nodes
  bool is_rate = true;   // true: more is better; false: less is better
  // Multiplies a rate by `factor`, or divides a latency or overhead by it. The topology is not built anew.
  std::function<void(Cluster&, double factor)> improve;
  double better(double factor) const { return is_rate ? value * factor : value / factor; }
};

// All levers of the groups on which ranks stand and of the links between them, in the order of the cluster. Figures
// of 0 have none. A NIC keeps the share of its rate that it reaches; uplinks that follow from the NICs
// (Network::oversubscription) improve with them. The time that software takes for a message
// (models/cluster/message_cost.cpp) is no lever, because no cluster has it as a figure.
std::vector<Lever> levers(const Job& job, const Program& program);

// One combined lever for each kind of lever that several groups or links have.
std::vector<Lever> combined(const std::vector<Lever>& levers);
// One lever that improves all; the list must not be empty.
Lever all_together(const std::vector<Lever>& levers);

// Keys of the parts of a cluster.
std::string flops_key(const NodeGroup& group);
std::string memory_key(const NodeGroup& group);
std::string overhead_key(const NodeGroup& group);
std::string inside_key(const NodeGroup& group);
std::string pcie_key(const NodeGroup& group);
std::string host_link_key(const NodeGroup& group);
std::string host_memory_key(const NodeGroup& group);
std::string nic_key(const NodeGroup& group, NicKind kind);
std::string link_key(std::size_t link);  // index in Cluster::links
std::string flow_key(std::size_t link);
std::string network_key(std::size_t network);  // index in Cluster::networks

// Name of a link: "east - west".
std::string name_of(const GroupLink& link);

// The job on a cluster in which the lever's thing is `factor` times better, with its topology built.
Job improved(const Job& job, const Lever& lever, double factor);

}  // namespace motley
