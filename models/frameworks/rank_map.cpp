#include "models/frameworks/rank_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "models/base/index.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/compile/compile.hpp"

namespace motley {
namespace {

const std::string& device_of(const Cluster& cluster, const NodeGroup& nodes) {
  const auto alike = std::count_if(cluster.groups.begin(), cluster.groups.end(), [&](const NodeGroup& group) {
    return group.chip.name == nodes.chip.name;
  });
  return alike > 1 ? nodes.name : nodes.chip.name;
}

// Names of hosts stand in scripts and in lines of words.
void refuse_host_name(const std::string& name) {
  const bool is_plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_';
  });
  if (!is_plain)
    throw Refusal(Exit::usage, "impossible-host-name", {},
                  fmt::format("`{}` is no name of a host", shortened(name)),
                  "letters, digits, `-`, `_` and `.`; --hosts names hosts where groups have other names");
}

}  // namespace

bool RankMap::has_equal_hosts() const {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const HostOfRanks& host) { return host.ranks.size() == hosts[0].ranks.size(); });
}

RankMap map_ranks(const Job& job, const std::vector<std::string>& names) {
  const Cluster& cluster = job.cluster;
  const Program program = place_ranks(job);
  RankMap map;
  std::map<int, std::int64_t> host_of_node;
  for (const Rank rank : program.ranks.ids()) {
    const int chip = program.ranks[rank].chip;
    const int node = cluster.chip_node[at(chip)], group = cluster.chip_group[at(chip)];
    const GroupLayout& layout = cluster.layout[at(group)];
    const NodeGroup& nodes = cluster.groups[at(group)];
    const auto [index, is_new] = host_of_node.emplace(node, static_cast<std::int64_t>(map.hosts.size()));
    if (is_new) {
      if (!names.empty() && at(node) >= names.size())
        throw Refusal(Exit::usage, "too-few-hosts", {},
                      fmt::format("{} names of hosts are given, and ranks stand on node {} of cluster `{}`",
                                  names.size(), node, cluster.name),
                      "a name for each node, in the order of `motley show cluster`");
      map.hosts.push_back(
          {names.empty() ? fmt::format("{}-{}", nodes.name, node - layout.first_node) : names[at(node)],
           device_of(cluster, nodes),
           nodes.chips_per_node,
           {}});
    }
    if (is_new) refuse_host_name(map.hosts.back().name);
    HostOfRanks& host = map.hosts[at(index->second)];
    const bool follows = is_new || map.ranks.back().host == index->second;
    if (!follows && !map.out_of_order) map.out_of_order = rank.value();
    map.ranks.push_back({index->second, (chip - layout.first_chip) % nodes.chips_per_node});
    MOTLEY_CHECK(map.ranks.back().chip == static_cast<std::int64_t>(host.ranks.size()));
    host.ranks.push_back(rank.value());
  }
  return map;
}

std::string print(const RankMap& map) {
  std::string text;
  for (std::size_t rank = 0; rank < map.ranks.size(); ++rank) {
    const RankPlace& place = map.ranks[rank];
    const HostOfRanks& host = map.hosts[at(place.host)];
    text += fmt::format("rank {}: host {} local {} ({})\n", rank, host.name, place.chip, host.device);
  }
  return text;
}

}  // namespace motley
