// What a Trace has of real ranks, and which tensors moved among them.
#include <algorithm>
#include <optional>
#include <vector>

#include "models/report/report.hpp"

namespace motley {
namespace {

// The ranks that take part in a transfer or collective; none: the instruction is neither.
std::vector<Rank> taking_part(const Program& program, Rank rank, const Instruction& instruction) {
  const RankEntry& entry = program.ranks[rank];
  if (const PeerMessage* message = instruction.message()) return {rank, entry.peers[message->slot].value()};
  const auto* collective = instruction.as<Collective>();
  if (collective == nullptr || !entry.groups[collective->slot]) return {};
  return program.groups[*entry.groups[collective->slot]].ranks;
}

template <class IsReal>
Rank lowest_of(const std::vector<Rank>& ranks, const IsReal& is_real) {
  std::optional<Rank> lowest;
  for (const Rank each : ranks)
    if (is_real(each) && (!lowest || each < *lowest)) lowest = each;
  return lowest.value();
}

// Adds the transfers and collectives of `rank`; each counts at its sender if that is real, else at its receiver, or at
// the lowest of its members that are real.
void add_moved(const Program& program, Rank rank, RealPart& part) {
  const auto is_real = [&](Rank other) {
    return std::binary_search(part.ranks.begin(), part.ranks.end(), other);
  };
  for (const Stream& stream : program.program_of(rank).streams)
    for (const Instruction& instruction : stream.instructions) {
      const std::vector<Rank> ranks = taking_part(program, rank, instruction);
      if (ranks.empty()) continue;
      const bool all_real = std::all_of(ranks.begin(), ranks.end(), is_real);
      const bool counts = instruction.op() == Op::send || (instruction.op() == Op::recv && !all_real) ||
                          (instruction.op() == Op::collective && lowest_of(ranks, is_real) == rank);
      if (!counts) continue;
      ++(all_real ? part.moved : part.filled_in);
      (all_real ? part.moved_bytes : part.filled_in_bytes) += payload_bytes(instruction);
    }
}

}  // namespace

std::optional<RealPart> real_part(const Program& program, const Trace& trace) {
  if (trace.measured_ranks.empty() || trace.world != "sim") return std::nullopt;
  RealPart part;
  part.ranks = trace.measured_ranks;
  std::sort(part.ranks.begin(), part.ranks.end());
  part.for_class = trace.measured_for_class;
  part.measured = trace.measured_transfers;
  for (const Rank rank : part.ranks) add_moved(program, rank, part);
  for (const TraceEvent& event : trace.events) part.paths.add(event.paths);
  return part;
}

}  // namespace motley
