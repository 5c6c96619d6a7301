// What a message costs beyond its links: by the software and hardware that moves it. The constants'
// sources stand in the .cpp. Read next: models/network_cost.hpp.
#pragma once

#include "models/cluster.hpp"

namespace motley {

// t(S) = L + 2*kappa*sqrt(L*W) + W, W = S/(efficiency*bandwidth). kappa = 0 is latency/bandwidth
// (Hockney 1994), 1 an ideally chunked pipeline. Efficiency is the share of its route's bandwidth
// that one flow reaches.
struct Transport {
  double efficiency = 1.0;
  double kappa = 0.0;               // of collectives
  double software_latency_s = 0.0;  // a message, beyond the links'
  double message_kappa = 0.0;       // of single messages
};

const Transport& inside_transport(FabricKind kind);
const Transport& rdma_transport();
// Sockets over a line of so many bytes/s.
const Transport& socket_transport(double bandwidth);
// What one flow reaches that is staged through host memory and TCP.
double staged_rate();
// Of a NIC's own kind: RDMA, or sockets over Ethernet.
const Transport& native_transport(const Nic& nic);

// Share of its bandwidth that a link reaches: what was measured, or the usual share.
double efficiency_of(const InsideFabric& inside);
double efficiency_of(const Nic& nic);
// Of the link of one chip.
double efficiency_of(const Pcie& pcie);
double usual_pcie_efficiency();
// Of links between switches and between sites, for the traffic of NICs of that kind.
double switch_efficiency(NicKind kind);

}  // namespace motley
