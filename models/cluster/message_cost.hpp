// The cost of a message beyond its links, by the software and hardware that moves it. models/cluster/message_cost.cpp
// gives the sources of the constants. Read next: models/cost/network_cost.hpp.
#pragma once

#include "models/cluster/cluster.hpp"

namespace motley {

// The cost of S bytes is t(S) = L + 2*kappa*sqrt(L*W) + W, W = S/(efficiency*bandwidth). A kappa of 0 is latency plus
// bytes over bandwidth (Hockney 1994), a kappa of 1 an ideally chunked pipeline.
struct MessageCost {
  double efficiency = 1.0;          // share of its route's bandwidth that one flow reaches
  double kappa = 0.0;               // kappa of collectives
  double software_latency_s = 0.0;  // seconds of each message beyond the latency of the links
  double message_kappa = 0.0;       // kappa of single messages
};

const MessageCost& inside_message_cost(FabricKind kind);
const MessageCost& rdma_message_cost();
// The cost over sockets on a line that they can fill. See socket_rate() for faster lines.
const MessageCost& socket_message_cost();
// Bytes/s that the sockets of one NIC reach: a share of the line, and no more than its streams and processors move.
double socket_rate(const Nic& nic);
// Bytes/s that one flow reaches when it is staged through host memory and TCP.
double staged_rate();
// The usual cost over a NIC: that of sockets for Ethernet, that of RDMA for other kinds.
const MessageCost& native_message_cost(const Nic& nic);

// Share of its bandwidth that a link reaches: the measured one (`reaches`), or the usual share.
double efficiency_of(const InsideFabric& inside);
double efficiency_of(const Nic& nic);
// The share that one chip's link reaches.
double efficiency_of(const Pcie& pcie);
double usual_pcie_efficiency();
// The share that links between switches and between sites reach for the traffic of that kind of NIC.
double switch_efficiency(NicKind kind);

}  // namespace motley
