#include "models/transport.hpp"

#include "models/cluster_layout.hpp"

namespace motley {
namespace {

// kappa: pooled fit over all-reduce sweeps of nccl-tests and rccl-tests on A100, H200, B200, H100 and MI350X (2026-11;
// leave-one-source-out range 0.41 to 0.57).
constexpr double kKappa = 0.48;

// Rings in an NVLink island reach 0.783 (A100), 0.812 (H200), 0.758 (B200) of the link rate: nccl-tests, 2023-2025,
// github:stas00/ml-engineering network/README.md.
// Hop: that of the low-latency protocol, which small messages take (NCCL 2.30 src/graph/tuning, ring, NVLink).
constexpr Transport kNvlink{0.78, kKappa, 0.6e-6, kKappa};
// Full xGMI mesh of eight: 0.70 (MI300X), 0.67 (MI350X), 0.76 (MI355X): rccl-tests, same collection. Hop: RCCL 2.21.5
// tuning, low-latency protocol.
constexpr Transport kXgmi{0.71, kKappa, 0.8e-6, kKappa};
// PCIe gen5 x16: 55.4 of 63 GB/s host to device, same collection. Hop: NCCL 2.30, low-latency protocol.
constexpr Transport kPcie{0.88, kKappa, 1.0e-6, kKappa};
// RDMA: 46 to 48 of 50 GB/s (NVIDIA/nccl-tests#290), 48.2 to 49.0 of 50 (DLSlime d665792).
// Hop: NCCL 2.30, ring over the network, bulk protocol. Single messages show no kappa: latency + bytes/bandwidth is
// within 17 % of every size of DLSlime's send and receive.
constexpr Transport kRdma{0.96, kKappa, 14e-6, 0.0};
// TCP: 30.6 to 31.4 of 32 Gb/s with one GPU a node, 0.45 to 0.72 with eight (NVIDIA/nccl#209); 0.32 to 0.48 at 100 Gb/s
// (NVIDIA/nccl#450). Assumes: sockets reach 0.92 of lines up to 32 Gb/s and 0.4 of faster ones; a message costs 30 us.
constexpr Transport kTcp{0.92, kKappa, 30e-6, kKappa};
constexpr Transport kFastTcp{0.40, kKappa, 30e-6, kKappa};
constexpr double kTcpKeepsUp = 32e9 / 8;
// Device-direct RDMA between vendors has 17 to 19 times the bandwidth of Gloo: arXiv:2605.31000, abstract. Assumes:
// over NICs of 400 Gb/s, and that copying, not the NIC, is what holds a staged flow.
constexpr double kStaged = 400e9 / 8 * kRdma.efficiency / 18;
// One host's processes over loopback: the platform file carries measured figures, nothing is taken off.
constexpr Transport kLoopback{1.0, 0.0, 0.0};

}  // namespace

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

const Transport& rdma_transport() { return kRdma; }
const Transport& socket_transport(double bandwidth) { return bandwidth <= kTcpKeepsUp ? kTcp : kFastTcp; }
double staged_rate() { return kStaged; }
const Transport& native_transport(const Nic& nic) {
  return nic.kind == NicKind::ethernet ? socket_transport(nic.bandwidth) : kRdma;
}

double efficiency_of(const InsideFabric& inside) {
  return inside.reaches > 0 ? inside.reaches / inside.bandwidth : inside_transport(inside.kind).efficiency;
}
double efficiency_of(const Nic& nic) {
  return nic.reaches > 0 ? nic.reaches / nic.bandwidth : native_transport(nic).efficiency;
}
double efficiency_of(const Pcie& pcie) {
  return pcie.reaches > 0 ? pcie.reaches / pcie_bandwidth(pcie.generation, pcie.lanes) : kPcie.efficiency;
}
double usual_pcie_efficiency() { return kPcie.efficiency; }
// Sockets are slow on fast lines for want of processors at their ends, not in between.
double switch_efficiency(NicKind kind) {
  return kind == NicKind::ethernet ? kTcp.efficiency : kRdma.efficiency;
}

}  // namespace motley
