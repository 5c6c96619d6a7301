#include "sim/world/memory_need.hpp"

#include "models/trace/trace.hpp"

namespace motley {
namespace {

// Bytes of each, fitted to the peak memory of runs of 1,024 to 1,024,000 ranks (x86-64, Debian 12, November 2026).
constexpr double kChip = 450, kMember = 500, kLane = 200;
constexpr double kRunningRank = 300, kStream = 500, kRunningLane = 500, kRunningLink = 400;
constexpr double kEvent = sizeof(TraceEvent);
constexpr double kRounds = 3;  // steps whose events are held where steps overlap

}  // namespace

MemoryNeed least_memory_need(const Job& job, const Program& program, std::int64_t lanes) {
  MemoryNeed need;
  need.lanes = lanes;
  need.bytes = kProcessBytes + kChip * job.cluster.chip_count() +
               kMember * static_cast<double>(program.ranks.size()) + kLane * static_cast<double>(lanes);
  return need;
}

MemoryNeed memory_need(const Job& job, const Program& program, const Folding& folding) {
  MemoryNeed need =
      least_memory_need(job, program, static_cast<std::int64_t>(folding.arrangement.lanes.size()));
  std::int64_t streams = 0;
  for (const Rank rank : folding.symmetry.ranks.first) {
    ++need.ranks;
    for (const Stream& stream : program.program_of(rank).streams) {
      ++streams;
      need.instructions += static_cast<std::int64_t>(stream.instructions.size());
    }
  }
  need.bytes +=
      kRunningRank * static_cast<double>(need.ranks) + kStream * static_cast<double>(streams) +
      kEvent * (job.strategy.steps_overlap() ? kRounds : 1) * static_cast<double>(need.instructions) +
      kRunningLane * static_cast<double>(folding.symmetry.lanes.first.size()) +
      kRunningLink * static_cast<double>(folding.symmetry.links.first.size());
  return need;
}

}  // namespace motley
