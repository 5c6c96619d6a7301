// Which transport carries what: exactly Holmes's rule (O-3), the policies, and what staging through hosts costs. The
// source of the rule is github:CodexDive/Holmes, megatron/core/hetnet.py.
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "models/base/refusal.hpp"
#include "models/cluster/topology.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/carriers_text.hpp"
#include "models/cost/network_cost.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

// Holmes's topology: blocks of equal size, the first `of_infiniband` with InfiniBand, the others with RoCE, and
// Ethernet between all.
Cluster blocks(int count, int of_infiniband, int nodes, int chips) {
  Cluster cluster;
  cluster.name = "blocks";
  for (int block = 0; block < count; ++block) {
    NodeGroup group;
    group.name = "block" + std::to_string(block);
    group.nodes = nodes;
    group.chip = tests::tiny_chip();
    group.chips_per_node = chips;
    group.inside = {FabricKind::nvswitch, 300e9, 2e-6};
    group.nics = {{block < of_infiniband ? NicKind::infiniband : NicKind::roce, 4, 25e9, 5e-6},
                  {NicKind::ethernet, 1, 3.125e9, 30e-6}};
    for (const NodeGroup& other : cluster.groups)
      cluster.links.push_back({other.name, group.name, NicKind::ethernet});
    cluster.groups.push_back(group);
  }
  build_topology(cluster);
  return cluster;
}

// The names of the networks that a route crosses.
std::set<std::string> networks_on(const Cluster& cluster, const Route& way) {
  std::set<std::string> names;
  for (auto [edge, end] = boost::edges(*cluster.topology); edge != end; ++edge) {
    if (std::find(way.links.begin(), way.links.end(), (*cluster.topology)[*edge].id) == way.links.end())
      continue;
    const Vertex& to = (*cluster.topology)[boost::target(*edge, *cluster.topology)];
    if (to.kind == VertexKind::network) names.insert(to.name);
  }
  return names;
}

Cluster two_groups(const std::string& link) {
  return parse_cluster(
      "name: two\ngroups:\n"
      "  - {name: a, nodes: 1, chip: anonymous, chips_per_node: 2, inside: {fabric: nvswitch, bandwidth: 300 "
      "GB/s}, "
      "nics: [{kind: infiniband, count: 2, bandwidth: 400 Gb/s}]}\n"
      "  - {name: b, nodes: 1, chip: anonymous, chips_per_node: 2, inside: {fabric: nvswitch, bandwidth: 300 "
      "GB/s}, "
      "nics: [{kind: infiniband, count: 2, bandwidth: 400 Gb/s}]}\n"
      "links: [{between: [a, b], over: infiniband" +
      link + "}]\n");
}

}  // namespace

TEST_CASE("O-3: a group in one block takes its RDMA, any other TCP, whatever its ranks") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    const int count = 1 + static_cast<int>(random() % 4);
    const int of_infiniband = static_cast<int>(random() % static_cast<unsigned>(count + 1));
    const Cluster cluster = blocks(count, of_infiniband, 2, 2);
    std::vector<int> ranks;
    const auto want = 2 + random() % 5;
    while (ranks.size() < want)
      ranks.push_back(static_cast<int>(random() % static_cast<unsigned>(count * 4)));
    std::set<int> touched, nodes;
    for (int rank : ranks) {
      touched.insert(rank / 4);
      nodes.insert(rank / 2);
    }
    const CarrierChoice choice = choose_carrier(cluster, ranks);
    CAPTURE(round, count, of_infiniband);
    if (nodes.size() == 1) {
      REQUIRE(choice.reason == CarrierReason::one_node);
    } else if (touched.size() == 1) {
      REQUIRE(choice.reason == CarrierReason::one_group);
      REQUIRE(choice.carrier == Carrier{});
      const NicKind first = cluster.groups[at(*touched.begin())].nics[0].kind;
      REQUIRE(first == (*touched.begin() < of_infiniband ? NicKind::infiniband : NicKind::roce));
    } else {
      REQUIRE(choice.reason == CarrierReason::no_common_rdma);
      REQUIRE(choice.carrier == Carrier{NicKind::ethernet, true});
    }
  }
}

TEST_CASE("O-3: no route of a group that spans blocks touches an RDMA network") {
  const Cluster cluster = blocks(3, 2, 2, 2);  // 4 IB and 2 RoCE nodes in Holmes's three equal blocks
  const std::vector<int> all = {0, 2, 4, 6, 8, 10};
  const Carrier carrier = choose_carrier(cluster, all).carrier;
  CHECK(transport_between(cluster, 0, 10) == "TCP over ethernet");
  CHECK(transport_between(cluster, 0, 2) == "RDMA over infiniband");
  for (int from : all)
    for (int to : all) {
      if (from == to) continue;
      CHECK(networks_on(cluster, route(cluster, from, to, carrier)) == std::set<std::string>{"ethernet"});
      CHECK(message_cost_of(cluster, from, to, carrier).efficiency == Approx(0.92));
      CHECK(route(cluster, from, to, carrier).bandwidth <= 3.125e9);
    }
}

TEST_CASE("without the rule every group between nodes takes sockets") {
  Cluster cluster = blocks(2, 1, 2, 2);
  cluster.transport = TransportPolicy::sockets;
  const std::vector<int> one_block = {0, 2}, one_node = {0, 1};
  CHECK(choose_carrier(cluster, one_block).carrier == Carrier{NicKind::ethernet, true});
  CHECK(choose_carrier(cluster, one_block).reason == CarrierReason::told);
  CHECK(choose_carrier(cluster, one_node).reason == CarrierReason::one_node);
  // Without an Ethernet NIC, TCP runs over the RDMA NICs, more slowly.
  Cluster bare = two_groups("");
  const std::vector<int> both = {0, 2};
  CHECK(choose_carrier(bare, both).reason == CarrierReason::common_rdma);
  bare.transport = TransportPolicy::sockets;
  const Carrier carrier = choose_carrier(bare, both).carrier;
  CHECK(carrier == Carrier{std::nullopt, true});
  CHECK(route(bare, 0, 2, carrier).rate < 0.5 * route(bare, 0, 2).rate);
  CHECK(route(bare, 0, 2, carrier).links == route(bare, 0, 2).links);
}

TEST_CASE("Holmes's policy moves the transfers of a pipeline over one transport") {
  Job job = tests::tiny_job({1, 4, 1}, Family::llama);
  job.cluster = blocks(2, 1, 2, 1);
  const Program program = compile(job);
  CHECK(choose_carrier(program, job.cluster, 0_rank, 1_rank).reason == CarrierReason::one_group);
  job.cluster.transport = TransportPolicy::holmes;
  for (Rank rank : {0_rank, 1_rank, 2_rank}) {
    CHECK(choose_carrier(program, job.cluster, rank, rank + 1).carrier == Carrier{NicKind::ethernet, true});
    CHECK(carrier_between(program, job.cluster, rank, rank + 1) == Carrier{NicKind::ethernet, true});
  }
  const auto listed = list_carriers(job, program);
  REQUIRE(listed.size() == 2);
  CHECK(listed[0].why == "as their whole pipeline, which no RDMA joins");
  CHECK(listed[1].why == "`block0`, `block1` share no RDMA");
  CHECK(carriers_text(listed).find("TCP, through the hosts") != std::string::npos);
}

// arXiv:2605.31000, abstract, says 17 to 19 times.
TEST_CASE("device-direct transfers between unlike chips are 17 to 19 times as fast as staged ones") {
  const Cluster direct = two_groups(""), staged = two_groups(", staged: true");
  CHECK(parse_cluster(print(staged)) == staged);
  CHECK_FALSE(staged == direct);
  const double ratio = route(direct, 0, 2).rate / route(staged, 0, 2).rate;
  CHECK(ratio >= 17);
  CHECK(ratio <= 19);
  CHECK(is_staged(staged, 0, 2));
  CHECK(transport_between(direct, 0, 2) == "RDMA over infiniband");
  CHECK(transport_between(staged, 0, 2) == "TCP over infiniband");
  CHECK(transport_between(staged, 0, 1) == "nvswitch");
  CHECK_FALSE(is_staged(staged, 0, 1));
  CHECK(message_cost_of(staged, 0, 2).software_latency_s > message_cost_of(direct, 0, 2).software_latency_s);
}

TEST_CASE("a policy prints and parses back, in a cluster and in a scenario") {
  Cluster cluster = two_groups("");
  cluster.transport = TransportPolicy::holmes;
  CHECK(parse_cluster(print(cluster)) == cluster);
  CHECK(load_scenario(MOTLEY_SOURCE_DIR "/scenarios/holmes-hybrid.yaml").job.cluster.transport ==
        TransportPolicy::holmes);
}
