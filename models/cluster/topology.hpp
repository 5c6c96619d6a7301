// The cluster's links as a Boost.Graph: vertices are chips, fabrics inside nodes, PCIe switches, sockets, NICs,
// switches of networks and hosts. Read next: models/cluster/cluster.hpp.
#pragma once

#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/cluster/cluster.hpp"

namespace motley {

enum class VertexKind : std::uint8_t { chip, inside, pcie_switch, socket, nic, network, host };

struct Vertex {
  VertexKind kind = VertexKind::chip;
  std::string name;  // "ib.3.chip5", "ib.3.nvswitch", "ib.3.pcie0", "ib.3.infiniband0", "infiniband"
  int chip = -1;     // global index of the chip; -1: the vertex is no chip
};

// A link in one direction.
struct DirectedLink {
  int id = 0;  // index into Cluster::link_table
};

using TopologyGraph = boost::compressed_sparse_row_graph<boost::directedS, Vertex, DirectedLink,
                                                         boost::no_property, std::uint32_t, std::uint32_t>;

class Topology : public TopologyGraph {
 public:
  // `ends`: from and to of each link, by id.
  Topology(std::vector<Vertex> vertices, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& ends);
};

}  // namespace motley
