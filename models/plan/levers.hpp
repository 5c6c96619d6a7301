// What of a cluster could be bought better: each rate and latency by itself, as a change of the Cluster. It says
// nothing of what that would bring: models/explain simulates the changed job. Read next: models/explain.hpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/compile.hpp"
#include "models/units.hpp"

namespace motley {

struct Lever {
  std::string what;   // "chip FLOP/s", "roce bandwidth"
  std::string where;  // "ib (a100-80gb-sxm)", "NICs of ib", "east - west"
  // Name the thing, so that parts of a path can say what would shorten them: "nic/ib/roce". Latencies have none.
  std::vector<std::string> keys;
  double value = 0;  // as it is; 0: several that need not be alike
  std::optional<Dimension> dimension = Dimension::bytes_per_second;  // nothing: a plain number
  bool in_bits = false;  // a rate that people say in bits: of what stands between nodes
  bool is_rate = true;   // better is more of it; else less
  // A rate becomes `factor` times as high, a latency or overhead 1/factor as long. The topology is not built anew.
  std::function<void(Cluster&, double factor)> improve;
  double better(double factor) const { return is_rate ? value * factor : value / factor; }
};

// Every one of the groups that ranks stand on, and of what joins them, in the order of the cluster; without those that
// are 0. A NIC keeps the share of its rate that it reaches; uplinks that follow from the NICs
// (Network::oversubscription) follow here too. Not there: what software takes for a message (models/transport.cpp),
// which is no figure of a cluster.
std::vector<Lever> levers(const Job& job, const Program& program);

// Of those that are there for several groups or links: all of one kind together.
std::vector<Lever> combined(const std::vector<Lever>& levers);
Lever all_together(const std::vector<Lever>& levers);

// The keys, from a part's place in the cluster.
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

// The job on a cluster that is so much better there; its topology is built.
Job improved(const Job& job, const Lever& lever, double factor);

}  // namespace motley
