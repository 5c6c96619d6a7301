// The cluster's links as a Boost.Graph: vertices are chips, fabrics inside nodes, PCIe switches, sockets, NICs,
// switches of networks and hosts. Read next: models/cluster/cluster.hpp.
#pragma once

#include <boost/graph/adjacency_list.hpp>
#include <string>

#include "models/cluster/cluster.hpp"

namespace motley {

enum class VertexKind : std::uint8_t { chip, inside, pcie_switch, socket, nic, network, host };

struct Vertex {
  VertexKind kind = VertexKind::chip;
  std::string name;  // "ib.3.chip5", "ib.3.nvswitch", "ib.3.pcie0", "ib.3.infiniband0", "infiniband"
  int chip = -1;     // global index of the chip; -1: the vertex is no chip
};

class Topology
    : public boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Vertex, LinkProperties> {
};

}  // namespace motley
