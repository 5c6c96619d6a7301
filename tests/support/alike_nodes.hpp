// Nodes that are all alike, and one group of ranks on their first chips: for tests of what a collective costs.
#pragma once

#include "models/base/index.hpp"
#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley::tests {

inline Cluster nodes_of(int nodes, int chips, double inside, double outside, double latency_s) {
  Cluster cluster;
  cluster.name = "nodes";
  NodeGroup group;
  group.name = "all";
  group.nodes = nodes;
  group.chip.name = "unit";
  group.chips_per_node = chips;
  group.inside = {FabricKind::loopback, inside, latency_s};
  group.nics = {{NicKind::infiniband, chips, outside, latency_s}};
  cluster.groups.push_back(group);
  build_topology(cluster);
  return cluster;
}

inline Program ranks_on(int ranks) {
  Program program;
  program.groups.add({GroupKind::data, {}});
  for (Rank rank : IdRange<Rank>(at(ranks))) {
    program.groups.front().ranks.push_back(program.ranks.add());
    program.ranks.back().chip = rank.value();
  }
  return program;
}

}  // namespace motley::tests
