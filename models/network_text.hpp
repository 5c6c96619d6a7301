// What is between nodes, as YAML: the networks of NICs, the links between groups. Only
// models/cluster_text.cpp and models/scenario.cpp include it.
#pragma once

#include "models/cluster.hpp"
#include "models/yaml_reader.hpp"

namespace motley {

// Of a cluster whose groups are read, with the links before this one.
GroupLink read_link(const Yaml& node, const Cluster& cluster);
// Of a cluster whose groups and links are read, with the networks before this one.
Network read_network(const Yaml& node, const Cluster& cluster);

TransportPolicy to_transport(const Yaml& node);

// One line each, without indent or newline, as the reader takes it.
std::string print(const GroupLink& link);
std::string print(const Network& network);

}  // namespace motley
