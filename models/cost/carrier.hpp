// Which transport moves the bytes of a group of ranks, and why. The rule, printed by `motley show costs`: inside a
// node, the fabric; where all stand in one group of the cluster, its first kind of NIC; where every two of their groups
// are joined over one kind of RDMA, that; else TCP, over Ethernet NICs where all have them, else over whatever joins
// each pair. RDMA of unlike families never meets. A transfer between stages is a group of two.
//
// Policies: by_group is that rule. holmes (arXiv:2312.03549, its public code) takes the ranks of a whole pipeline for
// one group too, as their transfers use one communicator. sockets is what a library without such a rule falls back to.
// It prices nothing: see models/cost/network_cost.hpp.
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
  no_common_nic,   // TCP over what joins each pair
  told             // the policy is sockets
};

struct CarrierChoice {
  Carrier carrier;
  CarrierReason reason = CarrierReason::one_node;
};

CarrierChoice choose_carrier(const Cluster& cluster, std::span<const int> chips);
CarrierChoice choose_carrier(const Program& program, const Cluster& cluster, const Group& group);
// Of what `from` sends to `to`, two stages of a pipeline.
CarrierChoice choose_carrier(const Program& program, const Cluster& cluster, Rank from, Rank to);
// The same without its reason, sooner.
Carrier carrier_between(const Program& program, const Cluster& cluster, Rank from, Rank to);

}  // namespace motley
