// Fuzz target: a cluster is read, printed and read back, and its chips look for routes.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/cluster/cluster.hpp"
#include "models/cost/carrier.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

void look_for_route(const Cluster& cluster, int from, int to) {
  const std::array<int, 2> ends = {from, to};
  try {
    const Route there = route(cluster, from, to, choose_carrier(cluster, ends).carrier);
    MOTLEY_CHECK(there.rate > 0 && there.latency_s >= 0);
    check_finite(fmt::format("{} {}", there.rate, there.latency_s));
  } catch (const Refusal& refusal) {
    MOTLEY_CHECK(refusal.kind() == "unreachable");
  }
}

}  // namespace

void take(const std::string& input) {
  const Yaml node = parse_yaml(input, "input.yaml");
  if (has_many_chips(node)) return;
  const Cluster cluster = read_cluster(node, "input", ".");
  const std::string text = print(cluster);
  check_finite(text);
  MOTLEY_CHECK(parse_cluster(text) == cluster);
  constexpr int kMostRoutes = 16;
  const int chips = cluster.chip_count(), apart = std::max(1, chips / kMostRoutes);
  for (int chip = 1; chip < chips; chip += apart) look_for_route(cluster, 0, chip);
}

}  // namespace motley::tests
