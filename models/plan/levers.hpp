// The rates and latencies of a cluster that could be bought better, each by itself, as a change of the Cluster. What
// that brings is not said here: models/explain simulates the changed job. Read next: models/explain/explain.hpp.
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
  // Names of the thing, so that parts of a path can say what would shorten them: "nic/ib/roce". Latencies have none.
  std::vector<std::string> keys;
  double value = 0;                                                  // now; 0: several things that differ
  std::optional<Dimension> dimension = Dimension::bytes_per_second;  // nothing: a plain number
  bool in_bits = false;  // a rate that people say in bits: of what stands between nodes
  bool is_rate = true;   // more is better; else less
  // A rate becomes `factor` times as high, a latency or overhead 1/factor as long. The topology is not built anew.
  std::function<void(Cluster&, double factor)> improve;
  double better(double factor) const { return is_rate ? value * factor : value / factor; }
};

// All levers of the groups that ranks stand on and of what joins them, in the order of the cluster. Figures that are 0
// have none. A NIC keeps the share of its rate that it reaches; uplinks that follow from the NICs
// (Network::oversubscription) follow here too. The time that software takes for a message
// (models/cluster/message_cost.cpp) is no lever: it is no figure of a cluster.
std::vector<Lever> levers(const Job& job, const Program& program);

// All levers of one kind together, for each kind that several groups or links have.
std::vector<Lever> combined(const std::vector<Lever>& levers);
// One lever that pulls all of them; at least one is given.
Lever all_together(const std::vector<Lever>& levers);

// The key of each part of a cluster.
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

// "east - west"
std::string name_of(const GroupLink& link);

// The job on a cluster of which this is so many times better; its topology is built.
Job improved(const Job& job, const Lever& lever, double factor);

}  // namespace motley
