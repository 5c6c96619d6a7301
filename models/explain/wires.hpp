// The wire that carries a message or a collective of a Program: a fabric inside a node, a kind of NIC, or a link
// between sites. It follows from the route, and no price is computed here. Read next: models/explain/path_parts.hpp.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/cost/carrier.hpp"
#include "models/program/program.hpp"

namespace motley {

struct Wire {
  std::string on;                 // "nvswitch", "roce", "link between sites"
  std::string group;              // group of the cluster: "ib"; between two groups: "ib - roce"
  std::vector<std::string> keys;  // keys of the levers that would make it faster (models/plan/levers.hpp)
  double rate = 0;                // bytes/s that one flow alone reaches
};

// Keeps references to both; they must outlive it. References to its wires stay valid.
class Wires {
 public:
  Wires(const Program& program, const Cluster& cluster) : program_(program), cluster_(cluster) {}

  // The wire of a send or recv.
  const Wire& of_transfer(Rank rank, const Instruction& transfer);
  // The edge with the lowest rate, of those in ring order and those from the first member to each other.
  const Wire& of_group(GroupId index);

 private:
  const NodeGroup& group_of(int chip) const;
  int chip_of(Rank rank) const { return program_.ranks[rank].chip; }
  Wire wire(Rank from_rank, Rank to_rank, const Carrier& carrier) const;

  const Program& program_;
  const Cluster& cluster_;
  std::map<std::pair<Rank, Rank>, Wire> transfers_;
  std::map<GroupId, Wire> groups_;
};

}  // namespace motley
