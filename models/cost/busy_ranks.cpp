#include "models/cost/busy_ranks.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "models/base/index.hpp"

namespace motley {

std::shared_ptr<const Cluster> as_busy_as(const Program& program, const Cluster& cluster) {
  const auto depends = [](const NodeGroup& group) { return group.chip.software.kernels.alone > 0; };
  if (std::none_of(cluster.groups.begin(), cluster.groups.end(), depends)) return nullptr;
  std::map<std::pair<int, int>, std::int64_t> ranks;  // of each node of each group
  std::vector<std::int64_t> most(cluster.groups.size(), 1);
  for (const RankEntry& entry : program.ranks) {
    const int group = cluster.chip_group[at(entry.chip)];
    const std::int64_t count = ++ranks[{group, cluster.chip_node[at(entry.chip)]}];
    most[at(group)] = std::max(most[at(group)], count);
  }
  std::shared_ptr<Cluster> busy;
  for (std::size_t i = 0; i < cluster.groups.size(); ++i) {
    std::optional<KernelRates> rates = among(cluster.groups[i].chip.software.kernels, most[i]);
    if (!rates) continue;
    if (busy == nullptr) busy = std::make_shared<Cluster>(cluster);
    busy->groups[i].chip.software.kernels = std::move(*rates);
  }
  return busy;
}

}  // namespace motley
