#include "models/cost/carriers_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "models/base/index.hpp"
#include "models/base/table.hpp"

namespace motley {
namespace {

// Prints numbers as runs: "0-3, 5".
std::string print_runs(const std::set<int>& numbers) {
  std::vector<std::string> runs;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const int first = *it;
    int last = first;
    while (++it != numbers.end() && *it == last + 1) last = *it;
    runs.push_back(first == last ? fmt::to_string(first) : fmt::format("{}-{}", first, last));
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

class CarrierLister {
 public:
  CarrierLister(const Job& job, const Program& program) : cluster_(job.cluster), program_(program) {}

  std::vector<ListedCarrier> list() {
    for (const Group& group : program_.groups) {
      if (group.ranks.size() < 2) continue;
      add(std::string(name_of(group.kind)), group.ranks, choose_carrier(program_, cluster_, group));
    }
    for (Rank rank : program_.ranks.ids())
      for (std::optional<Rank> peer :
           std::set<std::optional<Rank>>(entry(rank).peers.begin(), entry(rank).peers.end()))
        if (peer && *peer > rank)
          add("transfers", {rank, *peer}, choose_carrier(program_, cluster_, rank, *peer));
    std::vector<ListedCarrier> listed;
    for (const Key& key : order_) {
      const Seen& seen = seen_.at(key);
      const auto& [what, over, by, why] = key;
      listed.push_back({what, print_runs(seen.stages), seen.count, seen.rank_count, over, by, why});
    }
    return listed;
  }

 private:
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  struct Seen {
    std::set<int> stages;
    int count = 0, rank_count = 0;
  };

  const RankEntry& entry(Rank rank) const { return program_.ranks[rank]; }
  const NodeGroup& group_of(Rank rank) const {
    return cluster_.groups[at(cluster_.chip_group[at(entry(rank).chip)])];
  }

  std::size_t groups_of(const std::vector<Rank>& ranks) const {
    std::set<std::string> names;
    for (Rank rank : ranks) names.insert(group_of(rank).name);
    return names.size();
  }

  // Names of the cluster's groups in which the ranks stand.
  std::string places(const std::vector<Rank>& ranks) const {
    std::vector<std::string> names;
    for (Rank rank : ranks) {
      const std::string name = fmt::format("`{}`", group_of(rank).name);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return fmt::format("{}", fmt::join(names, ", "));
  }

  bool staged(const std::vector<Rank>& ranks) const {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (is_staged(cluster_, entry(ranks[i]).chip, entry(ranks[(i + 1) % ranks.size()]).chip)) return true;
    return false;
  }

  std::string over_of(const std::vector<Rank>& ranks, const CarrierChoice& choice) const {
    if (choice.reason == CarrierReason::one_node) return std::string(name_of(group_of(ranks[0]).inside.kind));
    if (choice.carrier.over) return std::string(name_of(*choice.carrier.over));
    if (choice.reason == CarrierReason::one_group)
      return std::string(name_of(group_of(ranks[0]).nics.at(0).kind));
    return "each pair's own";
  }

  std::string why_of(const std::vector<Rank>& ranks, const CarrierChoice& choice) const {
    switch (choice.reason) {
      case CarrierReason::one_node:
        return "in one node";
      case CarrierReason::one_group:
        return fmt::format("all in {}", places(ranks));
      case CarrierReason::common_rdma:
        return fmt::format("{} are joined over it", places(ranks));
      case CarrierReason::no_common_rdma:
        return fmt::format("{} share no RDMA", places(ranks));
      case CarrierReason::no_common_nic:
        return fmt::format("{} share no kind of NIC", places(ranks));
      case CarrierReason::told:
        return "`transport: sockets`";
    }
    return "?";
  }

  void add(const std::string& what, const std::vector<Rank>& ranks, const CarrierChoice& choice) {
    const std::string over = over_of(ranks, choice);
    std::string why = why_of(ranks, choice), by = "fabric";
    if (choice.reason != CarrierReason::one_node) {
      const bool rdma = !choice.carrier.sockets && over != name_of(NicKind::ethernet);
      const bool through_hosts = !rdma || staged(ranks);
      by = through_hosts ? "TCP, through the hosts" : "RDMA, device to device";
      if (rdma && through_hosts) why += ", but cannot reach each other's memory";
    }
    if (choice.reason == CarrierReason::no_common_rdma && groups_of(ranks) == 1)
      why = "as their whole pipeline, which no RDMA joins";
    const Key key{what, over, by, why};
    auto [it, is_new] = seen_.try_emplace(key);
    if (is_new) order_.push_back(key);
    for (Rank rank : ranks) it->second.stages.insert(entry(rank).stage);
    ++it->second.count;
    it->second.rank_count = std::max(it->second.rank_count, static_cast<int>(ranks.size()));
  }

  const Cluster& cluster_;
  const Program& program_;
  std::map<Key, Seen> seen_;
  std::vector<Key> order_;
};

}  // namespace

std::string transport_between(const Cluster& cluster, int from_chip, int to_chip) {
  const std::vector<int> chips = {from_chip, to_chip};
  const CarrierChoice choice = choose_carrier(cluster, chips);
  if (choice.reason == CarrierReason::one_node)
    return std::string(name_of(cluster.groups[at(cluster.chip_group[at(from_chip)])].inside.kind));
  const NicKind kind = joining_nic(cluster, from_chip, to_chip, choice.carrier).kind;
  const bool tcp =
      choice.carrier.sockets || kind == NicKind::ethernet || is_staged(cluster, from_chip, to_chip);
  return fmt::format("{} over {}", tcp ? "TCP" : "RDMA", name_of(kind));
}

std::vector<ListedCarrier> list_carriers(const Job& job, const Program& program) {
  return CarrierLister(job, program).list();
}

std::string carriers_text(const std::vector<ListedCarrier>& listed) {
  if (listed.empty()) return "";
  Table table("llrrlll", {"moved for", "stages", "count", "ranks", "over", "by", "why"});
  for (const ListedCarrier& each : listed)
    table.add({each.what, each.stages, fmt::to_string(each.count), fmt::to_string(each.rank_count), each.over,
               each.by, each.why});
  return "transports:\n" + table.print();
}

}  // namespace motley
