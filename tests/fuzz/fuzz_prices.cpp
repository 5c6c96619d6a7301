// Fuzz target: a list of prices is read for a cluster of two groups, and the clusters that its first additions make are
// printed and read back.
#include "models/plan/purchase.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

void take(const std::string& input) {
  constexpr std::size_t kMostMade = 4;
  static const Scenario small = read_scenario(
      parse_yaml(small_scenario("bf16", "{name: small, groups: [" + small_group("a", "a100-80gb-sxm") + ", " +
                                            small_group("b", "b200") + "]}"),
                 "small.yaml"),
      "small.yaml");
  const Cluster& cluster = small.job.cluster;
  const PriceList list = read_price_list(parse_yaml(input, "prices.yaml"), "prices.yaml", cluster);
  std::vector<std::vector<int>> additions = additions_of(list, cluster);
  MOTLEY_CHECK(static_cast<std::int64_t>(additions.size()) == list.additions);
  additions.resize(std::min(additions.size(), kMostMade));
  for (const std::vector<int>& nodes : additions) {
    Purchase purchase;
    purchase.nodes = nodes;
    Job larger = after(purchase, small.job, list);
    if (larger.cluster.chip_count() > kMostChips) continue;
    const std::string text = print(larger.cluster);
    check_finite(text);
    build_topology(larger.cluster);
    MOTLEY_CHECK(parse_cluster(text) == larger.cluster);
  }
}

}  // namespace motley::tests
