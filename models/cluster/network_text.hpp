// The networks of NICs and the links between groups, as YAML. A part of models/cluster/cluster_text.cpp; a scenario
// may also name the transport of its cluster.
#pragma once

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

// Reads `links` into a cluster that has all groups: links between two groups, and after them those that stand for
// every other pair of several groups.
void read_links(const Yaml& node, Cluster& cluster);
// Reads a network. `cluster` has all groups and links, and the networks that are listed before this one.
Network read_network(const Yaml& node, const Cluster& cluster);

TransportPolicy to_transport(const Yaml& node);

// Each prints one line without indent or newline, which its reader reads back.
std::string print(const GroupLink& link);
std::string print(const Network& network);

}  // namespace motley
