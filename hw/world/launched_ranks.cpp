#include "hw/world/launched_ranks.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "hw/launch/rendezvous.hpp"
#include "hw/transport/host_id.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {

std::vector<Rank> ascending(std::vector<Rank> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

namespace {

std::string counted(std::int32_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

}  // namespace

Rank rank_served(const Place& place, std::vector<Rank> ranks) {
  ranks = ascending(std::move(ranks));
  if (at(place.rank_count) != ranks.size())
    throw Refusal(
        Exit::usage, "rank-count", {},
        fmt::format("{}, and {}", counted(place.rank_count, "process was", "processes were") + " started",
                    counted(static_cast<std::int32_t>(ranks.size()), "rank is", "ranks are") + " real"),
        fmt::format("one process for each real rank: motley launch -n {} -- motley simulate ...",
                    ranks.size()));
  return ranks[at(place.rank)];
}

Meeting meet(const Place& place, const std::vector<Rank>& ranks, const std::string& work,
             const Agreement& alike, const std::string& machine, double timeout_s) {
  const Rank served = rank_served(place, ranks);
  const std::vector<Rank> real = ascending(ranks);
  RendezvousOptions meeting = rendezvous_of(place, work, timeout_s);
  meeting.alike = alike;
  Rendezvous rendezvous(meeting);
  const auto numbers = rendezvous.gather(fmt::format("process {}", getpid()));  // empty where rank > 0
  const auto boots = rendezvous.gather(host_id());
  const auto machines = rendezvous.gather(machine);
  Meeting met;
  met.rank = served;
  for (const Rank each : rendezvous.places().ids()) met.places[real[at(each)]] = rendezvous.places()[each];
  met.door = rendezvous.take_listener();
  IdTable<Rank, Socket> connections = rendezvous.take_connections();
  for (const Rank each : connections.ids()) {
    if (each == place.rank) continue;
    MetProcess& process = met.others[real[at(each)]];
    process.socket = std::move(connections[each]);
    process.named = fmt::format("{} at {}", numbers.empty() ? "its process" : numbers[each],
                                rendezvous.places()[each].address.host);
    if (!boots.empty()) process.host = {boots[each], machines[each]};
  }
  return met;
}

}  // namespace motley
