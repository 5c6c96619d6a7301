// What a Trace has of real ranks, and which tensors moved among them.
#include <algorithm>

#include "models/report/report.hpp"

namespace motley {
namespace {

// Adds the transfers and collectives in which `rank` takes part with real ranks alone; each counts at its sender, or at
// the lowest of its members.
void add_moved(const Program& program, Rank rank, RealPart& part) {
  const auto is_real = [&](Rank other) {
    return std::binary_search(part.ranks.begin(), part.ranks.end(), other);
  };
  const RankEntry& entry = program.ranks[rank];
  for (const Stream& stream : program.program_of(rank).streams)
    for (const Instruction& instruction : stream.instructions) {
      bool counts = false;
      if (const auto* send = instruction.as<Send>())
        counts = is_real(entry.peers[send->slot].value());
      else if (const auto* collective = instruction.as<Collective>())
        if (const std::optional<GroupId> group = entry.groups[collective->slot]) {
          const auto& members = program.groups[*group].ranks;
          counts = *std::min_element(members.begin(), members.end()) == rank &&
                   std::all_of(members.begin(), members.end(), is_real);
        }
      if (!counts) continue;
      ++part.moved;
      part.moved_bytes += payload_bytes(instruction);
    }
}

}  // namespace

std::optional<RealPart> real_part(const Program& program, const Trace& trace) {
  if (trace.measured_ranks.empty() || trace.world != "sim") return std::nullopt;
  RealPart part;
  part.ranks = trace.measured_ranks;
  std::sort(part.ranks.begin(), part.ranks.end());
  part.for_class = trace.measured_for_class;
  for (const Rank rank : part.ranks) add_moved(program, rank, part);
  return part;
}

}  // namespace motley
