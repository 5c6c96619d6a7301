#include "sim/fold.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

[[noreturn]] void refuse(const std::string& reason) {
  throw Refusal(Exit::infeasible, "unfoldable", {},
                fmt::format("cannot fold tensor-parallel peers: {}", reason),
                "simulate every rank: fidelity without `fold_tensor_parallel`");
}

// The quotient of the fabric: links that one transfer of every peer crosses at the same place are one class.
class Quotient {
 public:
  Quotient(const Program& program, const Cluster& cluster) : program_(program), cluster_(cluster) {}

  // The same transfer of each of the peers: from[i] to to[i].
  void add(const std::vector<Rank>& from, const std::vector<Rank>& to) {
    std::vector<Route> routes;
    for (std::size_t i = 0; i < from.size(); ++i)
      routes.push_back(route(cluster_, program_.ranks[at(from[i])].chip, program_.ranks[at(to[i])].chip));
    for (const Route& each : routes)
      if (each.links.size() != routes[0].links.size() || each.latency_s != routes[0].latency_s)
        refuse(fmt::format("rank {} and its peers reach rank {} and its peers by unlike routes", from[0],
                           to[0]));
    for (std::size_t hop = 0; hop < routes[0].links.size(); ++hop) {
      std::map<int, std::size_t> uses;
      for (const Route& each : routes) ++uses[each.links[hop]];
      add_class(uses, from);
    }
  }

  const Fabric::Shares& shares() const { return shares_; }

 private:
  void add_class(const std::map<int, std::size_t>& uses, const std::vector<Rank>& peers) {
    std::set<int> links;
    const auto [least, most] = std::minmax_element(
        uses.begin(), uses.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
    if (least->second != most->second)
      refuse(fmt::format("of rank {} and its peers, {} share one link and {} another", peers[0], most->second,
                         least->second));
    for (const auto& [link, count] : uses) {
      links.insert(link);
      if (cluster_.link_table[at(link)].bandwidth != cluster_.link_table[at(*links.begin())].bandwidth)
        refuse(fmt::format("the links of rank {} and its peers differ in bandwidth", peers[0]));
    }
    for (int link : links) {
      const auto [found, fresh] = classes_.try_emplace(link, links);
      if (!fresh && found->second != links)
        refuse(fmt::format("a link of rank {} and its peers carries others' traffic too", peers[0]));
      const double part = static_cast<double>(links.size()) / static_cast<double>(peers.size());
      const auto share = shares_.try_emplace(link, Fabric::Share{*links.begin(), part}).first;
      if (share->second.part != part)
        refuse(fmt::format("a link of rank {} and its peers is shared in two ways", peers[0]));
    }
  }

  const Program& program_;
  const Cluster& cluster_;
  std::map<int, std::set<int>> classes_;
  Fabric::Shares shares_;
};

// The rank's tensor-parallel peers, itself among them, by tensor_index.
std::vector<Rank> peers_of(const Program& program, Rank rank) {
  const RankEntry& entry = program.ranks[at(rank)];
  const int group = entry.groups.empty() ? -1 : entry.groups[kTensorGroup];
  if (group < 0) return {rank};
  std::vector<Rank> peers = program.groups[at(group)].ranks;
  std::sort(peers.begin(), peers.end(), [&](Rank a, Rank b) {
    return program.ranks[at(a)].tensor_index < program.ranks[at(b)].tensor_index;
  });
  return peers;
}

void check_alike(const Program& program, const Cluster& cluster, const std::vector<Rank>& peers) {
  const RankEntry& first = program.ranks[at(peers[0])];
  for (Rank rank : peers) {
    const RankEntry& entry = program.ranks[at(rank)];
    if (entry.of_class != first.of_class)
      refuse(fmt::format("ranks {} and {} run different instructions", peers[0], rank));
    if (cluster.chip_node[at(entry.chip)] != cluster.chip_node[at(first.chip)])
      refuse(fmt::format("ranks {} and {} are on different nodes", peers[0], rank));
  }
}

// The ranks at `where(peer)` of each peer; they must be one set of peers in the same order.
template <class Where>
std::vector<Rank> others_of(const Program& program, const std::vector<Rank>& peers, Where where) {
  std::vector<Rank> others;
  for (Rank peer : peers) others.push_back(where(peer));
  if (others != peers_of(program, others[0]))
    refuse(fmt::format("rank {} and its peers do not talk to one set of peers", peers[0]));
  return others;
}

Rank next_in_group(const Program& program, Rank rank, std::size_t slot) {
  const int index = program.ranks[at(rank)].groups[slot];
  if (index < 0) refuse(fmt::format("rank {} is in no group its peers are in", rank));
  const auto& ranks = program.groups[at(index)].ranks;
  const auto position = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  return ranks[at(position + 1) % ranks.size()];
}

void add_transfers_of(const Program& program, const std::vector<Rank>& peers, Quotient& quotient) {
  const RankEntry& first = program.ranks[at(peers[0])];
  for (std::size_t slot = 0; slot < first.peers.size(); ++slot)
    if (first.peers[slot] >= 0)
      quotient.add(peers,
                   others_of(program, peers, [&](Rank peer) { return program.ranks[at(peer)].peers[slot]; }));
  for (std::size_t slot = 0; slot < first.groups.size(); ++slot) {
    if (first.groups[slot] < 0) continue;
    const auto next = [&](Rank peer) { return next_in_group(program, peer, slot); };
    if (slot != kTensorGroup) {
      quotient.add(peers, others_of(program, peers, next));
      continue;
    }
    std::vector<Rank> turned;
    for (Rank peer : peers) turned.push_back(next(peer));
    quotient.add(peers, turned);
  }
}

}  // namespace

bool stands_for_peers(const Program& program, Rank rank) { return peers_of(program, rank)[0] == rank; }

Fabric::Shares fold_tensor_parallel(const Program& program, const Cluster& cluster) {
  Quotient quotient(program, cluster);
  for (Rank rank = 0; rank < program.rank_count(); ++rank) {
    const std::vector<Rank> peers = peers_of(program, rank);
    if (peers[0] != rank) continue;
    check_alike(program, cluster, peers);
    add_transfers_of(program, peers, quotient);
  }
  return quotient.shares();
}

}  // namespace motley
