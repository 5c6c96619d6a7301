// NCCL's choice of algorithm, compared with choices that were observed and with NCCL's own arithmetic.
#include <catch2/catch.hpp>

#include "models/cost/nccl_tuning.hpp"

using namespace motley;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

NcclTuning on(double nvlink, int nodes, int per_node, double nics) {
  Cluster cluster;
  cluster.name = "nodes";
  NodeGroup group;
  group.name = "all";
  group.nodes = nodes;
  group.chip.name = "unit";
  group.chips_per_node = per_node;
  group.inside = {FabricKind::nvswitch, nvlink, 0};
  if (nvlink >= 450e9) group.inside.in_switch = 0.6 * nvlink;
  group.nics = {{NicKind::infiniband, per_node, nics, 0}};
  cluster.groups.push_back(group);
  build_topology(cluster);
  Program program;
  program.groups.add({GroupKind::data, {}});
  for (Rank rank : IdRange<Rank>(at(cluster.chip_count()))) {
    program.groups.front().ranks.push_back(program.ranks.add());
    program.ranks.back().chip = rank.value();
  }
  return nccl_tuning(program, cluster, program.groups.front());
}

CollectiveAlgorithm choice_for(const NcclTuning& tuning, std::int64_t bytes) {
  return nccl_choice(tuning, CollectiveKind::all_reduce, bytes);
}

}  // namespace

TEST_CASE("in one node large sums go as NCCL 2.27.7 was seen to send them") {
  const std::int64_t bytes = 16'384 * kMiB;
  for (int gpus = 2; gpus <= 8; ++gpus) {
    CAPTURE(gpus);
    CHECK(choice_for(on(300e9, 1, gpus, 25e9), bytes) ==
          CollectiveAlgorithm::ring);  // switches of A100 do not reduce
    CHECK(choice_for(on(450e9, 1, gpus, 50e9), bytes) ==
          (gpus >= 5 ? CollectiveAlgorithm::in_switch : CollectiveAlgorithm::ring));
    CHECK(choice_for(on(900e9, 1, gpus, 50e9), bytes) ==
          (gpus >= 6 ? CollectiveAlgorithm::in_switch : CollectiveAlgorithm::ring));
  }
}

TEST_CASE("across nodes small sums go by trees and large ones by rings, the more nodes the later") {
  std::int64_t last = 0;
  for (int nodes : {4, 16, 64}) {
    const NcclTuning tuning = on(300e9, nodes, 8, 25e9);
    CHECK(tuning.nodes == nodes);
    CHECK(tuning.network_bus == Approx(200e9));
    std::int64_t first_ring = 0;
    for (std::int64_t bytes = 1024; bytes <= 65'536 * kMiB; bytes *= 2) {
      const CollectiveAlgorithm chosen = choice_for(tuning, bytes);
      if (chosen == CollectiveAlgorithm::ring && first_ring == 0) first_ring = bytes;
      if (first_ring == 0) CHECK(chosen == CollectiveAlgorithm::double_binary_tree);
    }
    CAPTURE(nodes);
    CHECK(first_ring > last);
    last = first_ring;
  }
}

TEST_CASE("the estimate is NCCL's sum: base, hops and bytes of the best protocol") {
  const NcclTuning eight = on(300e9, 1, 8, 25e9);
  // Protocol LL: 6.6 us, 14 hops of 0.6 us, bus bandwidth of 87.7 GB/s.
  CHECK(nccl_estimate_s(eight, CollectiveAlgorithm::ring, 1024) ==
        Approx(6.6e-6 + 14 * 0.6e-6 + 1024 / (87.7e9 * 8 / 14)));
  // Protocol Simple: 8.4 us, 14 hops of 3.4 us, bus bandwidth of 240 GB/s.
  CHECK(nccl_estimate_s(eight, CollectiveAlgorithm::ring, 1024 * kMiB) ==
        Approx(8.4e-6 + 14 * 3.4e-6 + 1024.0 * kMiB / (240e9 * 8 / 14)));
}

TEST_CASE("all but sums are left to no choice") {
  const NcclTuning tuning = on(450e9, 2, 8, 50e9);
  CHECK(nccl_choice(tuning, CollectiveKind::all_gather, 64) == CollectiveAlgorithm::ring);
  CHECK(nccl_choice(tuning, CollectiveKind::reduce_scatter, 64) == CollectiveAlgorithm::ring);
  CHECK(nccl_choice(tuning, CollectiveKind::all_to_all, 64) == CollectiveAlgorithm::flat);
}
