// The transports' constants, each with its source, and the closed forms over an idle fabric. It knows nothing of other
// traffic: contention is the simulator's. Read next: models/cluster.cpp, where routes come from.
#include "models/network_cost.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "models/refusal.hpp"

namespace motley {
namespace {

// kappa: pooled fit over all-reduce sweeps of nccl-tests and rccl-tests on A100, H200, B200, H100 and MI350X (2026-11;
// leave-one-source-out range 0.41 to 0.57).
constexpr double kKappa = 0.48;

// Rings in an NVLink island reach 0.783 (A100), 0.812 (H200), 0.758 (B200) of the link rate: nccl-tests, 2023-2025,
// github:stas00/ml-engineering network/README.md.
// Hop: that of the low-latency protocol, which small messages take (NCCL 2.30 src/graph/tuning, ring, NVLink).
constexpr Transport kNvlink{0.78, kKappa, 0.6e-6};
// Full xGMI mesh of eight: 0.70 (MI300X), 0.67 (MI350X), 0.76 (MI355X): rccl-tests, same collection. Hop: RCCL 2.21.5
// tuning, low-latency protocol.
constexpr Transport kXgmi{0.71, kKappa, 0.8e-6};
// PCIe gen5 x16: 55.4 of 63 GB/s host to device, same collection. Hop: NCCL 2.30, low-latency protocol.
constexpr Transport kPcie{0.88, kKappa, 1.0e-6};
// RDMA: 46 to 48 of 50 GB/s (NVIDIA/nccl-tests#290), 48.2 to 49.0 of 50 (DLSlime d665792).
// Hop: NCCL 2.30, ring over the network, bulk protocol.
constexpr Transport kRdma{0.96, kKappa, 14e-6};
// TCP: 30.6 to 31.4 of 32 Gb/s with one GPU a node, 0.45 to 0.72 with eight (NVIDIA/nccl#209); 0.32 to 0.48 at 100 Gb/s
// (NVIDIA/nccl#450). Assumes: sockets reach 0.92 of lines up to 32 Gb/s and 0.4 of faster ones; a message costs 30 us.
constexpr Transport kTcp{0.92, kKappa, 30e-6};
constexpr Transport kFastTcp{0.40, kKappa, 30e-6};
constexpr double kTcpKeepsUp = 32e9 / 8;
// One host's processes over loopback: the platform file carries measured figures, nothing is taken off.
constexpr Transport kLoopback{1.0, 0.0, 0.0};

const Transport& inside_transport(FabricKind kind) {
  switch (kind) {
    case FabricKind::nvswitch:
    case FabricKind::nvlink_mesh:
      return kNvlink;
    case FabricKind::xgmi_mesh:
      return kXgmi;
    case FabricKind::pcie:
      return kPcie;
    case FabricKind::loopback:
      return kLoopback;
  }
  return kLoopback;
}

}  // namespace

Transport transport_of(const Cluster& cluster, int from_chip, int to_chip) {
  const auto from = static_cast<std::size_t>(from_chip), to = static_cast<std::size_t>(to_chip);
  const NodeGroup& group = cluster.groups[static_cast<std::size_t>(cluster.chip_group[from])];
  if (cluster.chip_node[from] == cluster.chip_node[to]) return inside_transport(group.inside.kind);
  const Nic& nic = joining_nic(cluster, from_chip, to_chip);
  if (nic.kind != NicKind::ethernet) return kRdma;
  return nic.bandwidth <= kTcpKeepsUp ? kTcp : kFastTcp;
}

double message_overhead_s(const Transport& transport, const Route& route, std::int64_t bytes) {
  if (route.links.empty()) return transport.software_latency_s;
  const double wire_s = static_cast<double>(bytes) / (route.bandwidth * transport.efficiency);
  const double latency_s = route.latency_s + transport.software_latency_s;
  return transport.software_latency_s + 2 * transport.kappa * std::sqrt(latency_s * wire_s);
}

double message_time_s(const Transport& transport, const Route& route, std::int64_t bytes) {
  if (route.links.empty()) return transport.software_latency_s;
  return route.latency_s + static_cast<double>(bytes) / (route.bandwidth * transport.efficiency) +
         message_overhead_s(transport, route, bytes);
}

RingCost ring_cost(const Program& program, const Cluster& cluster, const Group& group) {
  RingCost ring;
  ring.rank_count = static_cast<int>(group.ranks.size());
  ring.inside_node = true;
  if (ring.rank_count < 2) return ring;
  const auto chip = [&](std::size_t i) {
    return program.ranks[static_cast<std::size_t>(group.ranks[i % group.ranks.size()])].chip;
  };
  std::vector<Route> routes;
  std::map<int, int> edges_on_link;
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    routes.push_back(route(cluster, chip(i), chip(i + 1)));
    for (int link : routes.back().links) ++edges_on_link[link];
  }
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    const Transport transport = transport_of(cluster, chip(i), chip(i + 1));
    int sharing = 1;
    for (int link : routes[i].links) sharing = std::max(sharing, edges_on_link[link]);
    const double bandwidth = routes[i].bandwidth * transport.efficiency / sharing;
    ring.latency_s = std::max(ring.latency_s, routes[i].latency_s + transport.software_latency_s);
    ring.bandwidth = ring.bandwidth == 0 ? bandwidth : std::min(ring.bandwidth, bandwidth);
    ring.kappa = std::max(ring.kappa, transport.kappa);
    ring.inside_node = ring.inside_node && routes[i].inside_node;
  }
  return ring;
}

double ring_all_reduce_s(const RingCost& ring, std::int64_t bytes) {
  if (ring.rank_count < 2) return 0;
  const double steps = 2.0 * (ring.rank_count - 1);
  const double latency_s = steps * ring.latency_s;
  const double wire_s = steps * static_cast<double>(bytes) / (ring.rank_count * ring.bandwidth);
  return latency_s + wire_s + 2 * ring.kappa * std::sqrt(latency_s * wire_s);
}

}  // namespace motley
