#include "models/check/inventory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Ranks that are together on a host or a node, in ascending order.
struct Together {
  std::string where;
  std::vector<Rank> ranks;
};

// By the first of their ranks.
template <class Key, class NameOf>
std::vector<Together> by_place(const IdTable<Rank, Key>& places, const NameOf& name_of) {
  std::map<Key, std::size_t> numbers;
  std::vector<Together> all;
  for (const Rank rank : places.ids()) {
    const auto [number, is_new] = numbers.try_emplace(places[rank], all.size());
    if (is_new) all.push_back({name_of(rank), {}});
    all[number->second].ranks.push_back(rank);
  }
  return all;
}

// "ranks 0-1 and 4"
std::string print(const std::vector<Rank>& ranks) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end].value() == ranks[end - 1].value() + 1) ++end;
    runs.push_back(end - i == 1 ? fmt::format("{}", ranks[i])
                                : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(runs, ", "));
}

std::string print(const std::vector<Together>& all, const char* one, const char* many) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < all.size() && i < kMost; ++i)
    parts.push_back(fmt::format("{} on {}", print(all[i].ranks), all[i].where));
  if (all.size() > kMost) parts.emplace_back("...");
  return fmt::format("{} {} ({})", all.size(), all.size() == 1 ? one : many, fmt::join(parts, "; "));
}

std::string node_of(const Cluster& cluster, int chip) {
  const int group = cluster.chip_group[at(chip)];
  int first = 0;  // the first chip of the group
  while (cluster.chip_group[at(first)] != group) ++first;
  return fmt::format("node {} of `{}`", cluster.chip_node[at(chip)] - cluster.chip_node[at(first)],
                     cluster.groups[at(group)].name);
}

}  // namespace

bool is_on_several_hosts(const Inventory& inventory) {
  for (const HostOfRank& each : inventory)
    if (each.id != inventory.front().id) return true;
  return false;
}

void require_inventory(const Program& program, const Cluster& cluster, const Inventory& inventory,
                       const Location& where, const std::string& hint) {
  IdTable<Rank, std::string> hosts;
  IdTable<Rank, int> nodes;
  for (const Rank rank : inventory.ids()) {
    hosts.add(inventory[rank].id);
    nodes.add(cluster.chip_node[at(program.ranks[rank].chip)]);
  }
  const auto here = by_place(hosts, [&](Rank rank) { return inventory[rank].name; });
  const auto asked = by_place(nodes, [&](Rank rank) { return node_of(cluster, program.ranks[rank].chip); });
  bool alike = here.size() == asked.size();
  for (std::size_t i = 0; alike && i < here.size(); ++i) alike = here[i].ranks == asked[i].ranks;
  if (!alike)
    throw Refusal(Exit::infeasible, "inventory-differs", where,
                  fmt::format("the ranks run on {}, and cluster `{}` has them on {}",
                              print(here, "host", "hosts"), cluster.name, print(asked, "node", "nodes")),
                  hint);
  for (const Rank rank : inventory.ids()) {
    const Chip& chip = cluster.chip_of(program.ranks[rank].chip);
    if (chip.kind != inventory[rank].device)
      throw Refusal(
          Exit::infeasible, "inventory-differs", where,
          fmt::format("rank {} on {} computes on a {}, and cluster `{}` has it on a {} ({})", rank,
                      inventory[rank].name, inventory[rank].device, cluster.name, chip.kind, chip.name),
          hint);
  }
}

}  // namespace motley
