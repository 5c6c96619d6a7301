// What the Sim world says of a deadlock: each stream that waits, and for what.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "sim/world/sim_world.hpp"

namespace motley {

std::string SimWorld::why(Rank rank, StreamId stream) {
  const StreamState& here = state(rank, stream);
  if (here.blocked == Blocked::after)
    return "waits for " +
           describe(program_, here.waits_for.rank, here.waits_for.stream, here.waits_for.index);
  const Instruction& instruction = program_.at(rank, stream, here.ended);
  const RankEntry& entry = program_.ranks[rank];
  if (const PeerMessage* message = instruction.message())
    return fmt::format("waits for rank {} to {}", entry.peers[message->slot].value(),
                       instruction.op() == Op::send ? "post its recv" : "send");
  const GroupId group = entry.groups[std::get<Collective>(instruction.body).slot].value();
  std::vector<Rank> missing;
  for (Rank member : program_.groups[group].ranks) {
    const auto& arrivals = gang_of(group).here;
    const Rank runs = folding_.symmetry.ranks.stand_in(member);
    const bool arrived = std::any_of(arrivals.begin(), arrivals.end(),
                                     [&](const Posted& posted) { return posted.event->step.rank == runs; });
    if (!arrived) missing.push_back(member);
  }
  return fmt::format("waits for rank {} to join", fmt::join(missing, ", "));
}

std::string SimWorld::describe_deadlock() {
  constexpr int kShown = 16;
  std::string lines;
  int waiting = 0;
  for (Rank rank : folding_.symmetry.ranks.first)
    for (StreamId stream : program_.program_of(rank).streams.ids()) {
      const StreamState& here = state(rank, stream);
      if (here.ended >= here.count || ++waiting > kShown) continue;
      lines += fmt::format("\n  {} {}", describe(program_, rank, stream, here.ended), why(rank, stream));
    }
  if (waiting == 0) return "";
  if (waiting > kShown) lines += fmt::format("\n  and {} more", waiting - kShown);
  return fmt::format("deadlock at {} s of virtual time, {} streams wait:{}", now_s(), waiting, lines);
}

}  // namespace motley
