#include "models/cost/carrier.hpp"

#include <algorithm>
#include <vector>

#include "models/base/index.hpp"
#include "models/cluster/cluster_layout.hpp"

namespace motley {
namespace {

// Groups of the cluster in which the chips stand, ascending.
std::vector<int> groups_of(const Cluster& cluster, std::span<const int> chips) {
  std::vector<int> groups;
  for (int chip : chips) {
    const int group = cluster.chip_group[at(chip)];
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

// Whether NICs of this kind join every two of these groups. Groups that no kind joins are not counted: they cannot
// communicate, and may not have to.
bool all_joined(const Cluster& cluster, const std::vector<int>& groups, NicKind kind) {
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (std::size_t j = i; j < groups.size(); ++j)
      if (joining_kind(cluster, groups[i], groups[j]) && !are_joined(cluster, groups[i], groups[j], kind))
        return false;
  return true;
}

// Whether this is the only kind by which listed links join the groups.
bool all_linked(const Cluster& cluster, const std::vector<int>& groups, NicKind kind) {
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (std::size_t j = i + 1; j < groups.size(); ++j)
      if (joining_kind(cluster, groups[i], groups[j]).value_or(kind) != kind) return false;
  return all_joined(cluster, groups, kind);
}

CarrierChoice by_sockets(const Cluster& cluster, const std::vector<int>& groups, CarrierReason reason) {
  if (all_joined(cluster, groups, NicKind::ethernet)) return {{NicKind::ethernet, true}, reason};
  return {{std::nullopt, true},
          reason == CarrierReason::no_common_rdma ? CarrierReason::no_common_nic : reason};
}

// Chips of the pipeline of `rank`: of all ranks that pass activations or their gradients on, from `rank`.
std::vector<int> chips_of_pipeline(const Program& program, Rank rank) {
  std::vector<Rank> ranks = {rank};
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (std::optional<Rank> peer : program.ranks[ranks[i]].peers)
      if (peer && std::find(ranks.begin(), ranks.end(), *peer) == ranks.end()) ranks.push_back(*peer);
  std::vector<int> chips;
  for (Rank each : ranks) chips.push_back(program.ranks[each].chip);
  return chips;
}

}  // namespace

CarrierChoice choose_carrier(const Cluster& cluster, std::span<const int> chips) {
  const bool one_node = std::all_of(chips.begin(), chips.end(), [&](int chip) {
    return cluster.chip_node[at(chip)] == cluster.chip_node[at(chips.front())];
  });
  if (one_node) return {};
  const std::vector<int> groups = groups_of(cluster, chips);
  if (cluster.transport == TransportPolicy::sockets) return by_sockets(cluster, groups, CarrierReason::told);
  if (groups.size() == 1) return {{}, CarrierReason::one_group};
  for (NicKind kind : {NicKind::infiniband, NicKind::roce})
    if (all_linked(cluster, groups, kind)) return {{kind, false}, CarrierReason::common_rdma};
  return by_sockets(cluster, groups, CarrierReason::no_common_rdma);
}

CarrierChoice choose_carrier(const Program& program, const Cluster& cluster, const Group& group) {
  std::vector<int> chips;
  for (Rank rank : group.ranks) chips.push_back(program.ranks[rank].chip);
  return choose_carrier(cluster, chips);
}

CarrierChoice choose_carrier(const Program& program, const Cluster& cluster, Rank from, Rank to) {
  const std::vector<int> pair = {program.ranks[from].chip, program.ranks[to].chip};
  if (cluster.transport != TransportPolicy::holmes) return choose_carrier(cluster, pair);
  const CarrierChoice own = choose_carrier(cluster, pair);
  if (own.reason == CarrierReason::one_node) return own;
  return choose_carrier(cluster, chips_of_pipeline(program, from));
}

Carrier carrier_between(const Program& program, const Cluster& cluster, Rank from, Rank to) {
  // Under by_group the standard carrier is right for two ranks: route() finds what joins them.
  if (cluster.transport == TransportPolicy::by_group) return {};
  return choose_carrier(program, cluster, from, to).carrier;
}

}  // namespace motley
