// What is here is compared with the cluster of a scenario.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "models/base/refusal.hpp"
#include "models/check/inventory.hpp"
#include "models/compile/one_call.hpp"
#include "tests/refusals/pages.hpp"

using namespace motley;

namespace {

Cluster nodes_of(int nodes, int chips, const std::string& chip = "host-core") {
  return parse_cluster("name: pair\ngroups:\n  - {name: small, nodes: " + std::to_string(nodes) +
                       ", chip: " + chip + ", chips_per_node: " + std::to_string(chips) +
                       ", inside: {fabric: loopback, bandwidth: 1 GB/s, latency: 10 us}, "
                       "nics: [{kind: ethernet, count: 1, bandwidth: 1 Gb/s, latency: 50 us}]}\n");
}

Program all_on(const Cluster& cluster) {
  std::vector<int> chips;
  for (int chip = 0; chip < cluster.chip_count(); ++chip) chips.push_back(chip);
  return program_of({CollectiveKind::all_reduce, 4}, chips);
}

Inventory at_hosts(const std::vector<std::string>& hosts) {
  Inventory inventory;
  for (const std::string& host : hosts) inventory.add({.id = host, .name = "10.0.0." + host});
  return inventory;
}

std::string refusal_of(const Cluster& cluster, const Inventory& inventory) {
  try {
    require_inventory(all_on(cluster), cluster, inventory, {.file = "pair.yaml"}, "change one");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "inventory-differs");
    CHECK(refusal.exit_code() == Exit::infeasible);
    return refusal.what();
  }
  return "";
}

std::string refused(const Cluster& cluster, const Inventory& inventory) {
  return tests::refusal_on_page(
      [&] { require_inventory(all_on(cluster), cluster, inventory, {.file = "pair.yaml"}, "change one"); });
}

}  // namespace

TEST_CASE(
    "ranks that are together where the cluster has them together are accepted, whatever hosts are called",
    "[inventory]") {
  CHECK(refusal_of(nodes_of(2, 2), at_hosts({"7", "7", "3", "3"})).empty());
  CHECK(refusal_of(nodes_of(1, 4), at_hosts({"7", "7", "7", "7"})).empty());
  CHECK(refusal_of(nodes_of(4, 1), at_hosts({"1", "2", "3", "4"})).empty());
}

TEST_CASE("inventory-differs: hosts that are not the nodes are refused, with both", "[inventory]") {
  CHECK(refused(nodes_of(2, 2), at_hosts({"1", "2", "2", "2"})) ==
        tests::expected_refusal("inventory-differs: hosts that are not the nodes of the cluster"));
  CHECK(refusal_of(nodes_of(1, 4), at_hosts({"1", "2", "1", "2"})) ==
        "pair.yaml: the ranks run on 2 hosts (ranks 0, 2 on 10.0.0.1; ranks 1, 3 on 10.0.0.2), and cluster "
        "`pair` "
        "has them on 1 node (ranks 0-3 on node 0 of `small`)\n  hint: change one");
}

TEST_CASE("inventory-differs: devices of another kind are refused, with both", "[inventory]") {
  CHECK(refused(nodes_of(2, 1, "a100-80gb-sxm"), at_hosts({"1", "2"})) ==
        tests::expected_refusal("inventory-differs: devices of another kind"));
}

TEST_CASE("an inventory is accepted if and only if it divides the ranks as the cluster does", "[inventory]") {
  std::mt19937_64 random(15);
  int accepted = 0;
  for (int draw = 0; draw < 300; ++draw) {
    const int nodes = std::uniform_int_distribution(1, 3)(random),
              chips = std::uniform_int_distribution(1, 3)(random);
    std::vector<std::string> hosts;
    for (int rank = 0; rank < nodes * chips; ++rank) {
      const int node = rank / chips, other = std::uniform_int_distribution(0, nodes - 1)(random);
      hosts.push_back(std::to_string(std::uniform_int_distribution(0, 5)(random) == 0 ? other : node));
    }
    bool alike = true;
    for (int a = 0; a < nodes * chips; ++a)
      for (int b = 0; b < a; ++b)
        alike = alike && (hosts[static_cast<std::size_t>(a)] == hosts[static_cast<std::size_t>(b)]) ==
                             (a / chips == b / chips);
    CAPTURE(nodes, chips, hosts);
    CHECK(refusal_of(nodes_of(nodes, chips), at_hosts(hosts)).empty() == alike);
    accepted += static_cast<int>(alike);
  }
  CHECK(accepted > 50);
  CHECK(accepted < 250);
}
