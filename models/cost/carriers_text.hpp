// The transports between the ranks of a Program, and why each is used, as a table that `motley show costs` prints.
// Read next: models/cost/carrier.hpp, which states the rule.
#pragma once

#include <string>
#include <vector>

#include "models/cost/carrier.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// Groups, or transfers between stages, that have the same carrier for the same reason.
struct ListedCarrier {
  std::string what;    // "tensor", "data", "embedding", "transfers"
  std::string stages;  // "0-3, 5"
  int count = 0;       // number of groups, or of pairs
  int rank_count = 0;  // number of ranks in the largest group
  std::string over;    // a fabric or a kind of NIC
  std::string by;      // "fabric", "RDMA, device to device", "TCP, through the hosts"
  std::string why;
  bool operator==(const ListedCarrier&) const = default;
};

// Returns "RDMA over infiniband", "TCP over ethernet", or the fabric of the chips' node.
std::string transport_between(const Cluster& cluster, int from_chip, int to_chip);
std::vector<ListedCarrier> list_carriers(const Job& job, const Program& program);
std::string carriers_text(const std::vector<ListedCarrier>& listed);

}  // namespace motley
