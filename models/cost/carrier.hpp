// Which transport moves the bytes of a group of ranks, and why. `motley show costs` prints the rule. Inside a node:
// the fabric. If all ranks stand in one group of the cluster: that group's first kind of NIC. If one kind of RDMA
// joins every two of their groups: that kind. Otherwise TCP: over Ethernet NICs if all have them, else over the kind
// that joins each pair. RDMA of different families is never joined. A transfer between stages is a group of two.
//
// Policies: by_group is that rule. holmes (arXiv:2312.03549, its public code) also takes the ranks of a whole
// pipeline for one group, because their transfers use one communicator. sockets is the fallback of a library without
// such a rule. No price is computed here: see models/cost/network_cost.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley {

enum class CarrierReason : std::uint8_t {
  one_node,
  one_group,
  common_rdma,
  no_common_rdma,  // TCP over Ethernet
  no_common_nic,   // TCP over the NIC kind that joins each pair
  told             // the policy is `sockets`
};

struct CarrierChoice {
  Carrier carrier;
  CarrierReason reason = CarrierReason::one_node;
};

CarrierChoice choose_carrier(const Cluster& cluster, std::span<const int> chips);
CarrierChoice choose_carrier(const Program& program, const Cluster& cluster, const Group& group);
// The carrier of messages from `from` to `to`, two stages of a pipeline.
CarrierChoice choose_carrier(const Program& program, const Cluster& cluster, Rank from, Rank to);
// The same carrier without its reason, which takes less time.
Carrier carrier_between(const Program& program, const Cluster& cluster, Rank from, Rank to);

}  // namespace motley
