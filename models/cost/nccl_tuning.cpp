#include "models/cost/nccl_tuning.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "models/cost/carrier.hpp"
#include "models/cost/collective_cost.hpp"
#include "models/cost/network_cost.hpp"

namespace motley {
namespace {

enum Protocol { kLl, kLl128, kSimple, kProtocols };
using ByProtocol = std::array<double, kProtocols>;

// Seconds by protocol: a fixed part, and a hop over NVLink, PCIe and the network.
struct Latencies {
  ByProtocol base, nvlink, pcie, network;
};
constexpr Latencies kTree{
    {6.8e-6, 14.0e-6, 8.4e-6}, {0.6e-6, 1.25e-6, 4.0e-6}, {1.0e-6, 1.9e-6, 4.0e-6}, {5.0e-6, 8.5e-6, 14e-6}};
constexpr Latencies kRing{
    {6.6e-6, 14.0e-6, 8.4e-6}, {0.6e-6, 1.9e-6, 3.4e-6}, {1.0e-6, 2.5e-6, 5.7e-6}, {2.7e-6, 4.0e-6, 14.0e-6}};
constexpr double kNvls_s = 25e-6, kNvlsTreeNetwork_s = 20.9e-6;
constexpr double kNetOverhead_s = 1e-6;  // a ring's hop through the network; Simple has three times as much

// Largest bandwidth of LL in bytes/s: on one node, two nodes, more nodes; by generation.
constexpr std::array<std::array<double, 3>, 4> kLlMost = {
    {{39e9, 39e9, 20.4e9}, {87.7e9, 22.5e9, 19e9}, {141e9, 45e9, 35e9}, {282e9, 90e9, 70e9}}};

// Share of its bandwidth that a tree reaches, for sizes of 64 B and each following power of two.
constexpr std::array<std::array<double, 24>, kProtocols> kTreeReaches = {
    {{1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7,  .7,  .7,  .6,  .5,
      .4,  .4,  .5,  .6,  .7, .8, .9, 1.0, 1.0, 1.0, 1.0, 1.0},
     {1.0, 1.0, 1.0, 1.0, 1.0, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1.0, 1.0, 1.0},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}}};

// Rings that NCCL's search finds move 240, 360 and 720 GB/s on A100, H100 and B200, each 0.8 of NVLink's rate; PCIe
// counts for 24 of 31.5 GB/s (generation 4).
constexpr double kNvlinkRing = 0.8, kPcieRing = 24 / 31.5;
// Share of a port's rate, fitted to choices of 2.27.7: H200 uses rings up to 4 GPUs and NVLS from 5, B200 rings up to
// 5 and NVLS from 6 (nccl-tests logs, github:stas00/ml-engineering network/README.md, 2025).
constexpr double kHopperSwitch = 0.51, kBlackwellSwitch = 0.49;

NcclGeneration generation_of(double nvlink_bandwidth) {
  if (nvlink_bandwidth >= 800e9) return NcclGeneration::blackwell;
  if (nvlink_bandwidth >= 400e9) return NcclGeneration::hopper;
  return nvlink_bandwidth >= 250e9 ? NcclGeneration::ampere : NcclGeneration::volta;
}

double seconds(double latency_s, double bandwidth, double bytes) { return latency_s + bytes / bandwidth; }

double ring_s(const NcclTuning& tuning, int protocol, double bytes) {
  const double n = tuning.shape.rank_count, steps = 2 * (n - 1);
  const auto at = static_cast<std::size_t>(protocol);
  const double between = tuning.nodes > 1 ? 2.0 * (tuning.nodes - 1) : 0;
  const double overhead = tuning.nodes > 1 ? kNetOverhead_s * (protocol == kSimple ? 3 : 1) : 0;
  const double inside = std::max((tuning.nvlink ? kRing.nvlink : kRing.pcie)[at], overhead);
  double latency_s =
      kRing.base[at] + (steps - between) * inside + between * (kRing.network[at] + tuning.nic_latency_s);
  if (protocol == kSimple && tuning.nodes > 1 && bytes / n >= 64 * 16)
    latency_s *= tuning.generation == NcclGeneration::volta ? 1.9 : 1.4;
  double bus = tuning.nodes > 1 ? std::min(tuning.inside_bus, tuning.network_bus) : tuning.inside_bus;
  const double most = kLlMost[static_cast<std::size_t>(tuning.generation)]
                             [static_cast<std::size_t>(std::min(tuning.nodes, 3) - 1)];
  if (protocol == kLl) bus = std::min(most, 0.5 * bus);
  if (protocol == kLl128) bus *= 0.92;
  return seconds(latency_s, bus * n / steps, bytes);
}

double tree_s(const NcclTuning& tuning, int protocol, double bytes) {
  const auto at = static_cast<std::size_t>(protocol);
  const double per_node = tuning.shape.rank_count / static_cast<double>(tuning.nodes);
  const double inside = (tuning.nvlink ? kTree.nvlink : kTree.pcie)[at];
  const int levels = std::bit_width(static_cast<unsigned>(tuning.nodes)) - 1;
  const double latency_s =
      kTree.base[at] + 2 * ((per_node - 1) * inside + levels * (kTree.network[at] + tuning.nic_latency_s));
  double bus =
      0.92 * (tuning.nodes > 1 ? std::min(tuning.inside_bus, tuning.network_bus) : tuning.inside_bus);
  const double most = kLlMost[static_cast<std::size_t>(tuning.generation)]
                             [static_cast<std::size_t>(std::min(tuning.nodes, 3) - 1)];
  if (protocol == kLl) bus = std::min(most, bus / 3.8);
  if (protocol == kLl128) bus *= tuning.nodes == 1 ? 7.0 / 9 : 120.0 / 128;
  const auto size = static_cast<std::uint64_t>(bytes / 64);
  const int power = static_cast<int>(std::bit_width(size)) - 1;
  if (power >= 0 && power < 24) bus *= kTreeReaches[at][static_cast<std::size_t>(power)];
  return seconds(latency_s, 0.5 * bus, bytes);
}

// NVLS, or on several nodes NVLSTree, whose NICs carry the payload once.
double switch_s(const NcclTuning& tuning, double bytes) {
  const double share = tuning.generation == NcclGeneration::blackwell ? kBlackwellSwitch : kHopperSwitch;
  if (tuning.nodes == 1) return seconds(kNvls_s, tuning.port * share, bytes);
  const double latency_s = kNvls_s + 2 * (kNvlsTreeNetwork_s + tuning.nic_latency_s);
  return seconds(latency_s, std::min(tuning.port * share, tuning.network_bus), bytes);
}

}  // namespace

NcclTuning nccl_tuning(const Program& program, const Cluster& cluster, const Group& group) {
  NcclTuning tuning;
  tuning.shape = shape_of(program, cluster, group);
  const auto chip = [&](std::size_t i) { return program.ranks[group.ranks[i % group.ranks.size()]].chip; };
  const Carrier carrier = choose_carrier(program, cluster, group).carrier;
  std::set<int> nodes;
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    const auto at = static_cast<std::size_t>(chip(i));
    nodes.insert(cluster.chip_node[at]);
    const InsideFabric& inside = cluster.groups[static_cast<std::size_t>(cluster.chip_group[at])].inside;
    const bool nvlink = inside.kind != FabricKind::pcie;
    const double bus = inside.bandwidth * (nvlink ? kNvlinkRing : kPcieRing);
    tuning.nvlink = i == 0 ? nvlink : tuning.nvlink && nvlink;
    tuning.inside_bus = i == 0 ? bus : std::min(tuning.inside_bus, bus);
    if (i == 0) tuning.generation = nvlink ? generation_of(inside.bandwidth) : NcclGeneration::ampere;
    if (tuning.shape.in_switch > 0) tuning.port = inside.bandwidth;
    if (group.ranks.size() < 2 || chip(i) == chip(i + 1)) continue;
    const Route way = route(cluster, chip(i), chip(i + 1), carrier);
    if (way.inside_node) continue;
    const Nic& nic = joining_nic(cluster, chip(i), chip(i + 1), carrier);
    const double network = std::min(nic.bandwidth * nic.count, way.bandwidth * nic.count);
    tuning.network_bus = tuning.network_bus == 0 ? network : std::min(tuning.network_bus, network);
    tuning.nic_latency_s = std::max(tuning.nic_latency_s, way.latency_s);
  }
  tuning.nodes = static_cast<int>(nodes.size());
  return tuning;
}

double nccl_estimate_s(const NcclTuning& tuning, CollectiveAlgorithm algorithm, std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (algorithm == CollectiveAlgorithm::in_switch) return tuning.port > 0 ? switch_s(tuning, size) : 0;
  const bool tree = algorithm == CollectiveAlgorithm::double_binary_tree;
  if (!tree && algorithm != CollectiveAlgorithm::ring) return 0;
  double least = 0;
  for (int protocol = 0; protocol < kProtocols; ++protocol) {
    const double each = tree ? tree_s(tuning, protocol, size) : ring_s(tuning, protocol, size);
    least = protocol == 0 ? each : std::min(least, each);
  }
  return least;
}

CollectiveAlgorithm nccl_choice(const NcclTuning& tuning, CollectiveKind kind, std::int64_t bytes) {
  CollectiveAlgorithm best = plain_algorithm(kind);
  if (kind != CollectiveKind::all_reduce || tuning.shape.rank_count < 2) return best;
  double best_s = nccl_estimate_s(tuning, best, bytes);
  for (CollectiveAlgorithm other :
       {CollectiveAlgorithm::double_binary_tree, CollectiveAlgorithm::in_switch}) {
    const double other_s = nccl_estimate_s(tuning, other, bytes);
    if (other_s <= 0 || other_s >= best_s) continue;
    best = other;
    best_s = other_s;
  }
  return best;
}

}  // namespace motley
