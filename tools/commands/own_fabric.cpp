#include "tools/commands/own_fabric.hpp"

#include <fmt/format.h>

#include <string>

#include "hw/transport/transport.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr const char* kHint =
    "`transfers: priced`, or a cluster of these hosts, which `motley calibrate --cluster FILE` writes";

[[noreturn]] void refuse(const Prepared& prepared, const std::string& why) {
  throw Refusal(Exit::infeasible, "other-fabric", prepared.scenario.cluster_location,
                fmt::format("transfers cannot be measured here: {}", why), kHint);
}

}  // namespace

void require_own_fabric(const Prepared& prepared, const std::map<Rank, RankHost>& hosts) {
  const Cluster& cluster = prepared.scenario.job.cluster;
  const auto node_of = [&](Rank rank) { return cluster.chip_node[at(prepared.program.ranks[rank].chip)]; };
  for (const Link& link : links_of(prepared.program)) {
    const auto from = hosts.find(link.from), to = hosts.find(link.to);
    if (from == hosts.end() || to == hosts.end()) continue;
    if (cluster.links_measured_on.empty())
      refuse(prepared,
             fmt::format("cluster `{}` does not say on which machine its links were measured", cluster.name));
    for (const auto& [rank, host] : {*from, *to})
      if (host.machine != cluster.links_measured_on)
        refuse(prepared,
               fmt::format("the links of cluster `{}` were measured on `{}`, and real rank {} runs on `{}`",
                           cluster.name, cluster.links_measured_on, rank, host.machine));
    const bool one_node = node_of(link.from) == node_of(link.to),
               one_host = from->second.boot == to->second.boot;
    if (one_node != one_host)
      refuse(prepared, fmt::format("real ranks {} and {} are on {} of cluster `{}`, and run on {}", link.from,
                                   link.to, one_node ? "one node" : "two nodes", cluster.name,
                                   one_host ? "one host" : "two hosts"));
  }
}

}  // namespace motley
