// The networks between nodes: the links that a flow takes, their rates and latencies, and that routes of 100,000 chips
// can be found.
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "models/base/refusal.hpp"
#include "models/cluster/cluster.hpp"
#include "models/cluster/topology.hpp"
#include "models/scenario/scenario.hpp"

using namespace motley;

namespace {

std::string group_of(const std::string& name, int nodes, int chips, const std::string& nics) {
  return "  - {name: " + name + ", nodes: " + std::to_string(nodes) +
         ", chip: anonymous, chips_per_node: " + std::to_string(chips) +
         ", inside: {fabric: nvswitch, bandwidth: 300 GB/s, latency: 2 us}, nics: [" + nics + "]}\n";
}

Cluster cluster_of(int nodes, int chips, const std::string& network) {
  const std::string nics =
      "{kind: infiniband, count: " + std::to_string(chips) + ", bandwidth: 200 Gb/s, latency: 4 us}";
  return parse_cluster("name: c\ngroups:\n" + group_of("all", nodes, chips, nics) +
                       "networks:\n  - {over: infiniband, " + network + "}\n");
}

std::vector<Topology::edge_descriptor> edges_of(const Cluster& cluster) {
  std::vector<Topology::edge_descriptor> edges(static_cast<std::size_t>(cluster.link_count));
  for (auto [edge, end] = boost::edges(*cluster.topology); edge != end; ++edge)
    edges[static_cast<std::size_t>((*cluster.topology)[*edge].id)] = *edge;
  return edges;
}

// The names of the switches that a route passes, found in the topology itself.
std::vector<std::string> switches_on(const Cluster& cluster, int from, int to) {
  const std::vector<Topology::edge_descriptor> edges = edges_of(cluster);
  std::vector<std::string> names;
  auto at = cluster.chip_vertex[static_cast<std::size_t>(from)];
  double latency_s = 0, rate = 1e300;
  const Route way = route(cluster, from, to);
  for (int id : way.links) {
    const auto edge = edges[static_cast<std::size_t>(id)];
    REQUIRE(boost::source(edge, *cluster.topology) == at);
    at = boost::target(edge, *cluster.topology);
    if ((*cluster.topology)[at].kind == VertexKind::network) names.push_back((*cluster.topology)[at].name);
    const LinkProperties& link = cluster.link_table[static_cast<std::size_t>(id)];
    latency_s += link.latency_s;
    rate = std::min(rate, link.bandwidth * link.efficiency);
  }
  REQUIRE(at == cluster.chip_vertex[static_cast<std::size_t>(to)]);
  REQUIRE(way.latency_s == Approx(latency_s));
  REQUIRE(way.rate <= rate);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("leaf-spine: one leaf for all ports of a node, a spine between leaves, oversubscribed as said") {
  const Cluster c =
      cluster_of(8, 4, "shape: leaf_spine, nodes_per_leaf: 2, spines: 4, oversubscription: 2, latency: 1 us");
  CHECK(switches_on(c, 0, 4) == Names{"infiniband.leaf0"});
  CHECK(switches_on(c, 0, 7) == Names{"infiniband.leaf0"});
  const Names far = switches_on(c, 0, 31);
  REQUIRE(far.size() == 3);
  CHECK(far[0] == "infiniband.leaf0");
  CHECK(far[1].starts_with("infiniband.spine"));
  CHECK(far[2] == "infiniband.leaf3");
  CHECK(route(c, 0, 31).latency_s == Approx(4e-6 + 2 * 1e-6));
  // Two nodes with four NICs of 25 GB/s each share four spines, oversubscribed two to one.
  CHECK(c.link_table[static_cast<std::size_t>(route(c, 0, 31).links[2])].bandwidth == Approx(25e9));
}

TEST_CASE("rail-optimised: port i of every node of a block on one leaf") {
  const Cluster c = cluster_of(8, 4, "shape: rail_optimised, nodes_per_leaf: 4, spines: 2");
  CHECK(switches_on(c, 1, 5) == Names{"infiniband.leaf1"});
  CHECK(switches_on(c, 1, 13) == Names{"infiniband.leaf1"});
  CHECK(switches_on(c, 1, 6).size() == 3);  // the chips are on different rails
  const Names other_block = switches_on(c, 1, 17);
  REQUIRE(other_block.size() == 3);
  CHECK(other_block[2] == "infiniband.leaf5");
  CHECK(c.link_table[static_cast<std::size_t>(route(c, 1, 17).links[2])].bandwidth == Approx(4 * 25e9 / 2));
}

TEST_CASE("ecmp spreads the flows of a leaf over its spines, adaptive routing makes one way of them") {
  const Cluster ecmp = cluster_of(32, 8, "shape: leaf_spine, nodes_per_leaf: 16, spines: 8, routing: ecmp");
  std::map<int, int> flows;
  for (int chip = 0; chip < 128; ++chip) ++flows[route(ecmp, chip, 128 + chip).links[2]];
  CHECK(flows.size() == 8);
  for (const auto& [link, count] : flows) CHECK(count < 40);  // 128 flows over 8 links
  const Cluster adaptive =
      cluster_of(32, 8, "shape: leaf_spine, nodes_per_leaf: 16, spines: 8, routing: adaptive");
  std::set<int> ways;
  for (int chip = 0; chip < 128; ++chip) ways.insert(route(adaptive, chip, 128 + chip).links[2]);
  CHECK(ways.size() == 1);
  CHECK(adaptive.link_table[static_cast<std::size_t>(*ways.begin())].bandwidth == Approx(128 * 25e9));
}

TEST_CASE("dragonfly: at most one local link, one global, one local, and every pair of groups has its own") {
  const Cluster c = cluster_of(
      36, 2,
      "shape: dragonfly, nodes_per_router: 2, routers_per_group: 3, local: 400 Gb/s, global: 800 Gb/s");
  CHECK(switches_on(c, 0, 2) == Names{"infiniband.router0"});
  CHECK(switches_on(c, 0, 4) == Names{"infiniband.router0", "infiniband.router1"});
  std::size_t longest = 0;
  std::set<int> global;
  for (int from = 0; from < c.chip_count(); from += 2)
    for (int to = 0; to < c.chip_count(); to += 2) {
      if (from == to) continue;
      longest = std::max(longest, switches_on(c, from, to).size());
      for (int id : route(c, from, to).links)
        if (c.link_table[static_cast<std::size_t>(id)].bandwidth == 100e9) global.insert(id);
    }
  CHECK(longest == 4);
  CHECK(global.size() == 6 * 5);  // directed links between six groups
}

TEST_CASE("two sites: one link for all, a flow held to what one connection reaches") {
  const std::string nics = "{kind: ethernet, count: 2, bandwidth: 25 Gb/s, latency: 20 us}";
  const std::string text =
      "name: c\ngroups:\n" + group_of("east", 8, 4, nics) + group_of("west", 4, 4, nics) +
      "links:\n  - {between: [west, east], over: ethernet, bandwidth: 10 Gb/s, latency: 30 ms"
      ", per_flow: 2 Gb/s}\n"
      "networks:\n  - {over: ethernet, groups: [east], shape: leaf_spine, nodes_per_leaf: 4, "
      "spines: 2}\n";
  const Cluster c = parse_cluster(text);
  CHECK(switches_on(c, 0, 32) == Names{"ethernet.east.leaf0", "ethernet.east.exit", "ethernet.west"});
  CHECK(switches_on(c, 32, 28) == Names{"ethernet.west", "ethernet.east.exit", "ethernet.east.leaf1"});
  CHECK(switches_on(c, 0, 16).size() == 3);
  CHECK(switches_on(c, 32, 36) == Names{"ethernet.west"});
  CHECK(route(c, 0, 32).bandwidth == Approx(10e9 / 8));
  CHECK(route(c, 0, 32).rate == Approx(2e9 / 8));
  CHECK(route(c, 0, 32).latency_s == Approx(30e-3 + 20e-6));
  CHECK(parse_cluster(print(c)) == c);
}

TEST_CASE("a link of several groups is one between each pair that has none of its own") {
  const std::string nics =
      "{kind: infiniband, count: 1, bandwidth: 200 Gb/s}, {kind: ethernet, count: 1, bandwidth: 25 Gb/s}";
  std::mt19937 random(7);
  for (int draw = 0; draw < 20; ++draw) {
    const int count = 2 + static_cast<int>(random() % 6);
    std::string groups = "name: c\ngroups:\n", own, rest;
    for (int i = 0; i < count; ++i) groups += group_of("g" + std::to_string(i), 1, 1, nics);
    const auto link = [](int a, int b, const char* over) {
      return "  - {between: [g" + std::to_string(a) + ", g" + std::to_string(b) + "], over: " + over + "}\n";
    };
    for (int a = 0; a < count; ++a)
      for (int b = a + 1; b < count; ++b)
        (random() % 3 == 0 ? own += link(b, a, "infiniband") : rest += link(a, b, "ethernet"));
    std::string list = "[g0";
    for (int i = 1; i < count; ++i) list += ", g" + std::to_string(i);
    const Cluster pairs = parse_cluster(groups + "links:\n" + own + rest);
    INFO(print(pairs));
    CHECK(parse_cluster(print(pairs)) == pairs);
    CHECK(parse_cluster(groups + "links:\n  - {between: all, over: ethernet}\n" + own) == pairs);
    if (count > 2)
      CHECK(parse_cluster(groups + "links:\n" + own + "  - {between: " + list + "], over: ethernet}\n") ==
            pairs);
  }
}

TEST_CASE("routes are the same each time, there and back over links that pair, and print and parse back") {
  for (const char* network :
       {"shape: leaf_spine, nodes_per_leaf: 3, spines: 5, uplink: 100 Gb/s, routing: adaptive",
        "shape: rail_optimised, nodes_per_leaf: 3, spines: 5, oversubscription: 1.5",
        "shape: dragonfly, nodes_per_router: 2, routers_per_group: 2, local: 1 Tb/s, "
        "global: 1 Tb/s, latency: 100 ns"}) {
    const Cluster one = cluster_of(10, 3, network), other = parse_cluster(print(one));
    CHECK(other == one);
    std::mt19937 random(3);
    std::uniform_int_distribution<int> chip(0, one.chip_count() - 1);
    for (int i = 0; i < 200; ++i) {
      const int from = chip(random), to = chip(random);
      CHECK(route(one, from, to) == route(other, from, to));
      CHECK(route(one, from, to).links.size() == route(one, to, from).links.size());
      if (from != to) switches_on(one, from, to);
    }
  }
}

TEST_CASE("100,000 chips on rails, with leaves and spines, are built and routed") {
  const Cluster c = cluster_of(12500, 8, "shape: rail_optimised, nodes_per_leaf: 32, spines: 32");
  CHECK(c.chip_count() == 100'000);
  CHECK(route(c, 0, 99'999).links.size() == 6);
  CHECK(route(c, 0, 99'992).links.size() == 6);
  CHECK(route(c, 0, 8).links.size() == 4);
}
