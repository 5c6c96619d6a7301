// Topology and routes: ids, paths, who can talk to whom.
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "models/base/refusal.hpp"
#include "models/cluster/topology.hpp"
#include "models/scenario/scenario.hpp"

using namespace motley;

namespace {

// Follows the links of a route in the topology itself.
void check_walks(const Cluster& cluster, int from, int to) {
  std::map<int, Topology::edge_descriptor> edge_of;
  for (auto [edge, end] = boost::edges(*cluster.topology); edge != end; ++edge)
    edge_of[(*cluster.topology)[*edge].id] = *edge;
  const Route way = route(cluster, from, to);
  auto at = cluster.chip_vertex[static_cast<std::size_t>(from)];
  double latency_s = 0, bandwidth = 1e300;
  for (int id : way.links) {
    const auto edge = edge_of.at(id);
    REQUIRE(boost::source(edge, *cluster.topology) == at);
    at = boost::target(edge, *cluster.topology);
    latency_s += cluster.link_table[static_cast<std::size_t>(id)].latency_s;
    bandwidth = std::min(bandwidth, cluster.link_table[static_cast<std::size_t>(id)].bandwidth);
  }
  CHECK(at == cluster.chip_vertex[static_cast<std::size_t>(to)]);
  CHECK(way.latency_s == Approx(latency_s));
  CHECK(way.bandwidth == bandwidth);
}

}  // namespace

TEST_CASE("every route is a path of the topology") {
  const Cluster cluster = load_cluster("holmes-hybrid-8");
  std::mt19937 random(1);
  std::uniform_int_distribution<int> chip(0, cluster.chip_count() - 1);
  for (int i = 0; i < 100; ++i) {
    const int from = chip(random), to = chip(random);
    if (from != to) check_walks(cluster, from, to);
  }
}

TEST_CASE("links are numbered from 0 without gaps, there and back next to each other") {
  const Cluster cluster = load_cluster("holmes-hybrid-8");
  std::map<int, std::pair<std::size_t, std::size_t>> ends;
  for (auto [edge, end] = boost::edges(*cluster.topology); edge != end; ++edge)
    ends[(*cluster.topology)[*edge].id] = {boost::source(*edge, *cluster.topology),
                                           boost::target(*edge, *cluster.topology)};
  REQUIRE(static_cast<int>(ends.size()) == cluster.link_count);
  for (int id = 0; id < cluster.link_count; id += 2) {
    REQUIRE(ends.at(id).first == ends.at(id + 1).second);
    REQUIRE(ends.at(id).second == ends.at(id + 1).first);
  }
}

TEST_CASE("inside a node the inside fabric carries, between nodes the nearest NIC") {
  const Cluster cluster = load_cluster("selene-like-1024");
  CHECK(cluster.chip_count() == 1024);
  const Route inside = route(cluster, 0, 7);
  CHECK(inside.inside_node);
  CHECK(inside.links.size() == 2);
  CHECK(inside.bandwidth == 300e9);
  CHECK(inside.latency_s == Approx(2e-6));
  const Route between = route(cluster, 7, 8);
  CHECK_FALSE(between.inside_node);
  CHECK(between.bandwidth == 25e9);
  CHECK(between.latency_s == Approx(5e-6));
}

TEST_CASE("islands of unlike networks meet over the NIC kind that the cluster lists") {
  const Cluster cluster = load_cluster("holmes-hybrid-8");
  CHECK(route(cluster, 0, 8).bandwidth == 25e9);                          // infiniband
  CHECK(route(cluster, 0, 32).bandwidth == Approx(25e9 / 8));             // ethernet
  CHECK(route(cluster, 32, 40).latency_s == Approx(6e-6));                // roce
  CHECK(route(cluster, 0, 8).links[1] == route(cluster, 1, 8).links[1]);  // two chips share a NIC
  CHECK(route(cluster, 0, 8).links[1] != route(cluster, 2, 8).links[1]);
}

TEST_CASE("groups that nothing joins cannot talk") {
  Cluster cluster = load_cluster("holmes-hybrid-8");
  cluster.links.clear();
  build_topology(cluster);
  CHECK_THROWS_AS(route(cluster, 0, 32), Refusal);
  CHECK_NOTHROW(route(cluster, 0, 8));
  int networks = 0;
  for (auto [v, end] = boost::vertices(*cluster.topology); v != end; ++v)
    networks += (*cluster.topology)[*v].kind == VertexKind::network;
  CHECK(networks == 4);  // infiniband, roce, two separate ethernets
}

TEST_CASE("of the kinds of NIC that two groups share the fastest is taken, however slow it is") {
  NodeGroup a, b;
  a.nics = {{NicKind::ethernet, 1, 0.5, 0}, {NicKind::infiniband, 1, 0.25, 0}};
  b.nics = {{NicKind::infiniband, 4, 0.25, 0}, {NicKind::roce, 1, 1e9, 0}};
  CHECK(fastest_shared_kind(a, b) == NicKind::infiniband);
  b.nics.push_back({NicKind::ethernet, 2, 0.2, 0});
  CHECK(fastest_shared_kind(a, b) == NicKind::ethernet);
  b.nics = {{NicKind::roce, 1, 1e9, 0}};
  CHECK_FALSE(fastest_shared_kind(a, b));
}
