#include "tools/commands/own_fabric.hpp"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr const char* kHint =
    "`transfers: priced`, or a cluster of these hosts, which `motley calibrate --cluster FILE` writes";

// Neighbours of pipelines, and the members of a group with each other.
std::set<std::pair<Rank, Rank>> pairs_that_talk(const Program& program) {
  std::set<std::pair<Rank, Rank>> pairs;
  for (const Rank rank : program.ranks.ids())
    for (const auto& peer : program.ranks[rank].peers)
      if (peer) pairs.emplace(rank, *peer);
  for (const Group& group : program.groups)
    for (const Rank from : group.ranks)
      for (const Rank to : group.ranks)
        if (from != to) pairs.emplace(from, to);
  return pairs;
}

[[noreturn]] void refuse(const Prepared& prepared, const std::string& why,
                         RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::infeasible, "other-fabric", prepared.scenario.cluster_location,
                fmt::format("transfers cannot be measured here: {}", why), kHint, site);
}

}  // namespace

void require_own_fabric(const Prepared& prepared, const std::map<Rank, RankHost>& hosts) {
  const Cluster& cluster = prepared.scenario.job.cluster;
  const auto node_of = [&](Rank rank) { return cluster.chip_node[at(prepared.program.ranks[rank].chip)]; };
  for (const auto& [sender, receiver] : pairs_that_talk(prepared.program)) {
    const auto from = hosts.find(sender), to = hosts.find(receiver);
    if (from == hosts.end() || to == hosts.end()) continue;
    if (cluster.links_measured_on.empty())
      refuse(prepared,
             fmt::format("cluster `{}` does not say on which machine its links were measured", cluster.name));
    for (const auto& [rank, host] : {*from, *to})
      if (host.machine != cluster.links_measured_on)
        refuse(prepared,
               fmt::format("the links of cluster `{}` were measured on `{}`, and real rank {} runs on `{}`",
                           cluster.name, cluster.links_measured_on, rank, host.machine));
    const bool one_node = node_of(sender) == node_of(receiver),
               one_host = from->second.boot == to->second.boot;
    if (one_node != one_host)
      refuse(prepared, fmt::format("real ranks {} and {} are on {} of cluster `{}`, and run on {}", sender,
                                   receiver, one_node ? "one node" : "two nodes", cluster.name,
                                   one_host ? "one host" : "two hosts"));
  }
}

}  // namespace motley
