#include "models/plan/cluster_edit.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// The chips and nodes that are slow, with the numbers that they have in the edited cluster. `place` says where each
// group went; -1: it is gone.
std::vector<Slow> moved_slow(const Cluster& before, const Cluster& after, const std::vector<int>& place) {
  std::vector<Slow> list;
  for (Slow each : before.slow) {
    std::optional<int>& number = each.chip ? each.chip : each.node;
    for (std::size_t group = 0; group < before.groups.size(); ++group) {
      const NodeGroup& nodes = before.groups[group];
      const GroupLayout& layout = before.layout[group];
      const int first = each.chip ? layout.first_chip : layout.first_node;
      const int count = nodes.nodes * (each.chip ? nodes.chips_per_node : 1);
      if (*number < first || *number >= first + count) continue;
      if (place[group] < 0) break;
      int now = 0;
      for (int i = 0; i < place[group]; ++i)
        now += after.groups[at(i)].nodes * (each.chip ? after.groups[at(i)].chips_per_node : 1);
      *number += now - first;
      list.push_back(each);
      break;
    }
  }
  return list;
}

Job rebuilt(const Job& job, Cluster cluster, const std::vector<int>& place) {
  cluster.slow = moved_slow(job.cluster, cluster, place);
  Job edited = job;
  edited.strategy = {};
  edited.cluster = std::move(cluster);
  build_topology(edited.cluster);
  return edited;
}

std::vector<int> same_places(const Cluster& cluster) {
  std::vector<int> places;
  for (std::size_t group = 0; group < cluster.groups.size(); ++group)
    places.push_back(static_cast<int>(group));
  return places;
}

bool has_nic(const NodeGroup& group, NicKind kind) {
  return std::any_of(group.nics.begin(), group.nics.end(), [&](const Nic& nic) { return nic.kind == kind; });
}

std::optional<NicKind> common_kind(const NodeGroup& a, const NodeGroup& b) {
  for (const NicKind kind : every<NicKind>())
    if (has_nic(a, kind) && has_nic(b, kind)) return kind;
  return std::nullopt;
}

}  // namespace

Job with_more_nodes(const Job& job, int group, int nodes) {
  Cluster cluster = job.cluster;
  cluster.groups[at(group)].nodes += nodes;
  return rebuilt(job, std::move(cluster), same_places(job.cluster));
}

Job with_group(const Job& job, const NodeGroup& group) {
  Cluster cluster = job.cluster;
  for (const NodeGroup& other : job.cluster.groups)
    if (const auto kind = common_kind(group, other)) {
      GroupLink& link = cluster.links.emplace_back();
      link.from = other.name;
      link.to = group.name;
      link.over = *kind;
    }
  cluster.groups.push_back(group);
  return rebuilt(job, std::move(cluster), same_places(job.cluster));
}

Job without_group(const Job& job, int group) {
  MOTLEY_CHECK(job.cluster.groups.size() > 1);
  Cluster cluster = job.cluster;
  const NodeGroup retired = cluster.groups[at(group)];
  const std::string& name = retired.name;
  cluster.groups.erase(cluster.groups.begin() + group);
  std::erase_if(cluster.links, [&](const GroupLink& link) { return link.from == name || link.to == name; });
  // A network goes with its last group.
  std::erase_if(cluster.networks, [&](Network& network) {
    const bool names_groups = !network.groups.empty();
    std::erase(network.groups, name);
    const bool has_nics = std::any_of(cluster.groups.begin(), cluster.groups.end(),
                                      [&](const NodeGroup& other) { return has_nic(other, network.over); });
    return (has_nic(retired, network.over) && !has_nics) || (names_groups && network.groups.empty());
  });
  std::vector<int> places = same_places(job.cluster);
  for (int& place : places) place = place == group ? -1 : place > group ? place - 1 : place;
  return rebuilt(job, std::move(cluster), places);
}

std::optional<Job> with_link(const Job& job, int group, int other) {
  Cluster cluster = job.cluster;
  const NodeGroup &a = cluster.groups[at(group)], &b = cluster.groups[at(other)];
  const auto kind = common_kind(a, b);
  if (!kind) return std::nullopt;
  GroupLink& link = cluster.links.emplace_back();
  link.from = a.name;
  link.to = b.name;
  link.over = *kind;
  return rebuilt(job, std::move(cluster), same_places(job.cluster));
}

}  // namespace motley
