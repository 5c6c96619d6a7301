// Fuzz target: what bench comm measured is read, and becomes a cluster that is printed and read back.
#include "models/calibration/comm_links.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

void take(const std::string& input) {
  static const Chip host = load_chip("host-core");
  const CommLinks links = read_comm_links(input, "input.json");
  if (std::int64_t{links.hosts} * links.ranks_per_host > kMostChips) return;
  Cluster cluster;
  cluster.name = "fuzz";
  cluster.groups = {hosts_with(host, links)};
  const std::string text = print(cluster);
  check_finite(text);
  build_topology(cluster);
  MOTLEY_CHECK(parse_cluster(text) == cluster);
}

}  // namespace motley::tests
