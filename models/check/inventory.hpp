// Whether the ranks of a run are where the scenario's cluster has them: as many hosts as nodes, the same ranks on each,
// on devices of the same kind. Names of hosts and nodes play no part. Read next: hw/launch/rendezvous.hpp, where ranks
// tell each other their hosts.
#pragma once

#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley {

struct HostOfRank {
  std::string id;              // equal for ranks of one host
  std::string name;            // for messages
  std::string device = "cpu";  // Chip::kind of what the rank computes on
};
using Inventory = IdTable<Rank, HostOfRank>;

// Whether the ranks run on more than one host.
bool is_on_several_hosts(const Inventory& inventory);

// Throws Refusal("inventory-differs"), which says what is here and what the cluster has. `where`: names the cluster.
void require_inventory(const Program& program, const Cluster& cluster, const Inventory& inventory,
                       const Location& where, const std::string& hint);

}  // namespace motley
