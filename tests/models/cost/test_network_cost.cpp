// The network cost model on an idle fabric: closed forms, laws over size and bandwidth, rings that share links, and one
// published sweep.
#include <catch2/catch.hpp>
#include <numeric>

#include "models/base/refusal.hpp"
#include "models/cost/network_cost.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// A cluster of `nodes` nodes with `chips` chips each, NVSwitch inside, and these NICs.
Cluster nodes_of(int nodes, int chips, std::vector<Nic> nics) {
  Cluster cluster;
  NodeGroup group;
  group.name = "all";
  group.nodes = nodes;
  group.chip = tiny_chip();
  group.chips_per_node = chips;
  group.inside = {FabricKind::nvswitch, 300e9, 2e-6};
  group.nics = std::move(nics);
  cluster.groups.push_back(group);
  build_topology(cluster);
  return cluster;
}

// A Program with one group over these chips, in this order.
Program ring_over(const std::vector<int>& chips) {
  Program program;
  Group group;
  for (int chip : chips) {
    RankEntry entry;
    entry.chip = chip;
    group.ranks.push_back(program.ranks.add(entry));
  }
  program.groups.add(group);
  return program;
}

RingCost ring_of(const Cluster& cluster, const std::vector<int>& chips) {
  const Program program = ring_over(chips);
  return ring_cost(program, cluster, program.groups.front());
}

}  // namespace

TEST_CASE("without kappa a message takes latency plus bytes over bandwidth") {
  const Cluster cluster = tiny_cluster(2);
  const Route path = route(cluster, 0, 1);
  const MessageCost transport = message_cost_of(cluster, 0, 1);
  REQUIRE(transport.kappa == 0);
  for (std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{123'456'789}}) {
    const double expected = path.latency_s + static_cast<double>(bytes) / path.bandwidth;
    REQUIRE(message_time_s(transport, path, bytes) == Approx(expected).epsilon(1e-12));
    REQUIRE(message_overhead_s(transport, path, bytes) == 0);
  }
}

TEST_CASE("kappa 1 is an ideally chunked pipeline: the square of the sum of roots") {
  const Cluster cluster = nodes_of(2, 1, {{NicKind::infiniband, 1, 25e9, 5e-6}});
  const Route path = route(cluster, 0, 1);
  const MessageCost transport{0.5, 0.0, 3e-6, 1.0};
  const double latency_s = path.latency_s + 3e-6, wire_s = 1e6 / (25e9 * 0.5);
  const double root = std::sqrt(latency_s) + std::sqrt(wire_s);
  REQUIRE(message_time_s(transport, path, 1'000'000) == Approx(root * root).epsilon(1e-12));
}

TEST_CASE("a larger message never takes less time, a faster or nearer path never more") {
  const Cluster slow = nodes_of(2, 2, {{NicKind::roce, 1, 12.5e9, 9e-6}});
  const Cluster fast = nodes_of(2, 2, {{NicKind::roce, 1, 25e9, 5e-6}});
  double before = 0;
  for (std::int64_t bytes = 1; bytes < 1'000'000'000; bytes *= 7) {
    const auto took = [&](const Cluster& cluster, int to) {
      return message_time_s(message_cost_of(cluster, 0, to), route(cluster, 0, to), bytes);
    };
    REQUIRE(took(slow, 2) > before);
    REQUIRE(took(fast, 2) < took(slow, 2));
    REQUIRE(took(fast, 1) < took(fast, 2));  // inside the node
    before = took(slow, 2);
  }
}

TEST_CASE("sockets reach less of a line than RDMA, and little of a fast one") {
  const auto efficiency = [](NicKind kind, double bandwidth) {
    return message_cost_of(nodes_of(2, 1, {{kind, 1, bandwidth, 5e-6}}), 0, 1).efficiency;
  };
  REQUIRE(efficiency(NicKind::infiniband, 25e9) == efficiency(NicKind::roce, 25e9));
  REQUIRE(efficiency(NicKind::ethernet, 3e9) < efficiency(NicKind::infiniband, 3e9));
  REQUIRE(efficiency(NicKind::ethernet, 12.5e9) < efficiency(NicKind::ethernet, 3e9));
}

TEST_CASE("what sockets reach never falls and never jumps with the line, the streams or the processors") {
  const auto reached = [](double bandwidth, int streams = 0, int processors = 0) {
    Nic nic{NicKind::ethernet, 1, bandwidth, 30e-6};
    nic.streams = streams;
    nic.processors = processors;
    const Cluster cluster = nodes_of(2, 1, {nic});
    return route(cluster, 0, 1).rate;
  };
  // The measured points that models/cluster/message_cost.cpp names.
  CHECK(reached(1e9 / 8) == Approx(0.115e9).epsilon(0.01));
  CHECK(reached(25e9 / 8) == Approx(2.86e9).epsilon(0.01));
  CHECK(reached(32e9 / 8) == Approx(31e9 / 8).epsilon(0.06));
  CHECK(reached(100e9 / 8) >= 4e9);
  CHECK(reached(100e9 / 8) <= 6e9);
  CHECK(reached(40e9 / 8, 1) == Approx(1.07e9).epsilon(0.2));
  for (int streams : {0, 1, 4, 16})
    for (int processors : {0, 1, 3, 16})
      for (double gigabits = 1; gigabits < 500; gigabits *= 1.01) {
        const double line = gigabits * 1e9 / 8, rate = reached(line, streams, processors);
        const double faster = reached(line * 1.01, streams, processors);
        REQUIRE(faster >= rate * (1 - 1e-12));
        REQUIRE(faster <= rate * 1.0101);
        REQUIRE(reached(line, streams == 0 ? 5 : streams + 1, processors) >= rate * (1 - 1e-12));
        if (processors > 0) REQUIRE(reached(line, streams, processors + 1) >= rate * (1 - 1e-12));
      }
}

TEST_CASE("a ring all-reduce takes 2(R-1)(alpha + bytes/(R*beta)) without kappa, and nothing alone") {
  for (int R : {2, 3, 8, 1000}) {
    const RingCost ring{R, 7e-6, 3e9, 0, true};
    const double expected = 2.0 * (R - 1) * (7e-6 + 1e9 / (R * 3e9));
    REQUIRE(ring_all_reduce_s(ring, 1'000'000'000) == Approx(expected).epsilon(1e-12));
  }
  REQUIRE(ring_all_reduce_s({}, 1'000'000'000) == 0);
}

TEST_CASE("a ring of one rank has no edges, and one inside a node never leaves it") {
  const Cluster cluster = nodes_of(2, 4, {{NicKind::infiniband, 4, 25e9, 5e-6}});
  REQUIRE(ring_of(cluster, {3}).rank_count == 1);
  const RingCost inside = ring_of(cluster, {0, 1, 2, 3});
  REQUIRE(inside.inside_node);
  REQUIRE(inside.bandwidth == Approx(300e9 * message_cost_of(cluster, 0, 1).efficiency).epsilon(1e-12));
}

TEST_CASE("the slowest edge decides a ring") {
  const Cluster cluster = nodes_of(2, 4, {{NicKind::infiniband, 4, 25e9, 5e-6}});
  const RingCost across = ring_of(cluster, {3, 4});
  const MessageCost rdma = message_cost_of(cluster, 3, 4);
  REQUIRE(!across.inside_node);
  REQUIRE(across.bandwidth == Approx(25e9 * rdma.efficiency).epsilon(1e-12));
  REQUIRE(across.latency_s ==
          Approx(route(cluster, 3, 4).latency_s + rdma.software_latency_s).epsilon(1e-12));
  REQUIRE(ring_of(cluster, {0, 1, 4}).bandwidth == Approx(25e9 * rdma.efficiency).epsilon(1e-12));
}

TEST_CASE("rings over nodes leave by every NIC, and each hop is waited for once") {
  const Cluster cluster = nodes_of(3, 4, {{NicKind::infiniband, 4, 25e9, 5e-6}});
  std::vector<int> chips(12);
  std::iota(chips.begin(), chips.end(), 0);
  const RingCost rings = ring_of(cluster, chips);
  CHECK(rings.rings == 4);
  CHECK(rings.bandwidth == Approx(4 * 25e9 * message_cost_of(cluster, 0, 4).efficiency).epsilon(1e-12));
  const auto hop_s = [&](int from, int to) {
    return route(cluster, from, to).latency_s + message_cost_of(cluster, from, to).software_latency_s;
  };
  // A part takes 11 hops: two over borders between nodes, nine inside nodes.
  CHECK(11 * rings.latency_s == Approx(9 * hop_s(0, 1) + 2 * hop_s(0, 4)).epsilon(1e-12));
  // With faster NICs the fabric inside the nodes is the limit: a chip's port carries three of the four rings.
  const Cluster wide = nodes_of(3, 4, {{NicKind::infiniband, 4, 400e9, 5e-6}});
  CHECK(ring_of(wide, chips).bandwidth ==
        Approx(300e9 * message_cost_of(wide, 0, 1).efficiency * 4 / 3).epsilon(1e-12));
  // With one NIC all rings together are as fast as one ring.
  const Cluster narrow = nodes_of(3, 4, {{NicKind::infiniband, 1, 25e9, 5e-6}});
  CHECK(ring_of(narrow, chips).bandwidth ==
        Approx(25e9 * message_cost_of(narrow, 0, 4).efficiency).epsilon(1e-12));
}

TEST_CASE("every member of rings over nodes sends what a member of one ring does") {
  for (const FabricKind kind : {FabricKind::nvswitch, FabricKind::xgmi_mesh})
    for (const int nodes : {2, 3, 5}) {
      Cluster cluster = nodes_of(nodes, 4, {{NicKind::infiniband, 4, 25e9, 5e-6}});
      cluster.groups[0].inside = {kind, 448e9, 2e-6};
      build_topology(cluster);
      std::vector<int> chips(static_cast<std::size_t>(4 * nodes));
      std::iota(chips.begin(), chips.end(), 0);
      const RingCost rings = ring_of(cluster, chips);
      int parts = 0;
      for (const RingHop& hop : rings.hops) {
        parts += hop.parts;
        for (std::size_t i = 0; i < chips.size(); ++i) {
          const std::size_t to = hop.to(i, chips.size());
          CHECK(hop.from(to, chips.size()) == i);
          CHECK((hop.around > 0) == (to / 4 == i / 4));
          if (hop.around == 0) CHECK(to % 4 == i % 4);
        }
      }
      CHECK(parts == rings.rings);
      CHECK(rings.hops.size() == (kind == FabricKind::xgmi_mesh ? 4 : 2));
    }
}

TEST_CASE("edges of a ring that share a NIC and direction share its bandwidth") {
  const Cluster cluster = nodes_of(2, 4, {{NicKind::infiniband, 1, 25e9, 5e-6}});
  const double once = ring_of(cluster, {0, 1, 4, 5}).bandwidth;   // one edge in each direction
  const double twice = ring_of(cluster, {0, 4, 1, 5}).bandwidth;  // two edges in each direction
  const double thrice = ring_of(cluster, {0, 4, 1, 5, 2, 6}).bandwidth;
  REQUIRE(twice == Approx(once / 2).epsilon(1e-12));
  REQUIRE(thrice == Approx(once / 3).epsilon(1e-12));
}

TEST_CASE("a ring over chips that cannot talk is refused") {
  const Cluster cluster = nodes_of(2, 1, {});
  REQUIRE_THROWS_AS(ring_of(cluster, {0, 1}), Refusal);
}

// nccl-tests all_reduce on one DGX A100 (8 GPUs, NVLink 3): github:stas00/ml-engineering network/README.md. Its times
// include 28 us for the launch of each call, which matter below 4 MiB; a queued kernel does not need them.
TEST_CASE("rings inside a DGX A100 are within 20 % of a published sweep from 4 MiB on") {
  const Cluster cluster = nodes_of(1, 8, {});
  const RingCost ring = ring_of(cluster, {0, 1, 2, 3, 4, 5, 6, 7});
  const std::vector<std::pair<std::int64_t, double>> measured_us = {
      {4 << 20, 101.5},    {8 << 20, 133.5},    {16 << 20, 276.6},   {32 << 20, 424.0}, {64 << 20, 684.6},
      {128 << 20, 1327.6}, {256 << 20, 2420.6}, {512 << 20, 4218.4}, {1 << 30, 8203.9}};
  for (const auto& [bytes, microseconds] : measured_us) {
    INFO(bytes);
    REQUIRE(ring_all_reduce_s(ring, bytes) * 1e6 == Approx(microseconds).epsilon(0.20));
  }
}

// Bus bandwidth of an all_reduce of 4 GiB between two and eight MI300X of a node: 47.7 and 312.9 GB/s,
// github:stas00/ml-engineering@744d01e network/README.md.
TEST_CASE("rings inside a mesh keep all its links busy, as published for MI300X within 6 %") {
  Cluster cluster = nodes_of(1, 8, {});
  cluster.groups[0].inside = {FabricKind::xgmi_mesh, 448e9, 2e-6};
  build_topology(cluster);
  const std::int64_t bytes = std::int64_t{4} << 30;
  const auto bus_rate = [&](const RingCost& ring) {
    const double parts = ring.rank_count;
    return 2 * (parts - 1) / parts * static_cast<double>(bytes) / ring_all_reduce_s(ring, bytes);
  };
  CHECK(bus_rate(ring_of(cluster, {3, 6})) == Approx(47.671e9).epsilon(0.06));
  CHECK(bus_rate(ring_of(cluster, {0, 1, 2, 3, 4, 5, 6, 7})) == Approx(312.912e9).epsilon(0.06));
  CHECK(ring_of(cluster, {0, 1, 2, 3, 4, 5, 6, 7}).rings == 7);
}
