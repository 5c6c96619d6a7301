#include "models/cluster/message_cost.hpp"

#include <algorithm>

#include "models/cluster/cluster_layout.hpp"

namespace motley {
namespace {

// kappa is a pooled fit over all-reduce sweeps of nccl-tests and rccl-tests on A100, H200, B200, H100 and MI350X
// (2026-11; between 0.41 and 0.57 where one source is left out).
constexpr double kKappa = 0.48;

// Rings in an NVLink island reach 0.783 (A100), 0.812 (H200), 0.758 (B200) of the link rate: nccl-tests, 2023-2025,
// github:stas00/ml-engineering network/README.md. A hop takes the time of the low-latency protocol, which is for
// small messages (NCCL 2.30 src/graph/tuning, ring, NVLink).
constexpr MessageCost kNvlink{0.78, kKappa, 0.6e-6, kKappa};
// A full xGMI mesh of eight reaches 0.70 (MI300X), 0.67 (MI350X), 0.76 (MI355X): rccl-tests, same collection. A hop
// takes the time of the low-latency protocol in the tuning of RCCL 2.21.5.
constexpr MessageCost kXgmi{0.71, kKappa, 0.8e-6, kKappa};
// PCIe gen5 x16 reaches 55.4 of 63 GB/s from host to device, same collection. A hop takes the time of the low-latency
// protocol of NCCL 2.30.
constexpr MessageCost kPcie{0.88, kKappa, 1.0e-6, kKappa};
// RDMA reaches 46 to 48 of 50 GB/s (NVIDIA/nccl-tests#290), 48.2 to 49.0 of 50 (DLSlime d665792). A hop takes the time
// of the bulk protocol of NCCL 2.30, in a ring over the network. Single messages show no kappa: latency plus bytes over
// bandwidth is within 17 % of every size of DLSlime's send and receive.
constexpr MessageCost kRdma{0.96, kKappa, 14e-6, 0.0};
// TCP reaches 0.92 of 1 and 25 Gb/s (github:eth-easl/sailor@cf2c8e3) and 30.6 to 31.4 of 32 Gb/s with one GPU a node, a
// share of 0.45 to 0.72 with eight (NVIDIA/nccl#209, 2019). Assumes: a message costs 30 us.
constexpr MessageCost kTcp{0.92, kKappa, 30e-6, kKappa};
// Four sockets with a thread each reach 4 to 6 of the 12.5 GB/s of a 100 Gb/s line (NVIDIA/nccl#450, 2021), and one
// with a core of its own 1.07 of 5 GB/s (pytorch/gloo#248). Assumes: a processor moves 1.25 GB/s through its sockets,
// so that the copies of the kernel, not the line, limit lines faster than 43 Gb/s; a library opens four sockets.
constexpr double kStreamRate = 1.25e9;
constexpr int kUsualStreams = 4;
// Device-direct RDMA between vendors has 17 to 19 times the bandwidth of Gloo: arXiv:2605.31000, abstract.
// Assumes: this was over NICs of 400 Gb/s, and copying, not the NIC, limits a staged flow.
constexpr double kStaged = 400e9 / 8 * kRdma.efficiency / 18;
// Messages between processes of one host over loopback: the cluster's file has measured figures, which are used in
// full.
constexpr MessageCost kLoopback{1.0, 0.0, 0.0};

}  // namespace

const MessageCost& inside_message_cost(FabricKind kind) {
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

const MessageCost& rdma_message_cost() { return kRdma; }
const MessageCost& socket_message_cost() { return kTcp; }
double socket_rate(const Nic& nic) {
  const int streams = nic.streams > 0 ? nic.streams : kUsualStreams;
  const int busy = nic.processors > 0 ? std::min(streams, nic.processors) : streams;
  return std::min(kTcp.efficiency * nic.bandwidth, busy * kStreamRate);
}
double staged_rate() { return kStaged; }
const MessageCost& native_message_cost(const Nic& nic) {
  return nic.kind == NicKind::ethernet ? kTcp : kRdma;
}

double efficiency_of(const InsideFabric& inside) {
  return inside.reaches > 0 ? inside.reaches / inside.bandwidth : inside_message_cost(inside.kind).efficiency;
}
double efficiency_of(const Nic& nic) {
  if (nic.reaches > 0) return nic.reaches / nic.bandwidth;
  return nic.kind == NicKind::ethernet ? socket_rate(nic) / nic.bandwidth : kRdma.efficiency;
}
double efficiency_of(const Pcie& pcie) {
  return pcie.reaches > 0 ? pcie.reaches / pcie_bandwidth(pcie.generation, pcie.lanes) : kPcie.efficiency;
}
double usual_pcie_efficiency() { return kPcie.efficiency; }
// Assumes: sockets are slow on fast lines because of the processors at both ends, not because of the links between.
double switch_efficiency(NicKind kind) {
  return kind == NicKind::ethernet ? kTcp.efficiency : kRdma.efficiency;
}

}  // namespace motley
