#include "models/check/memory_extra.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "models/base/index.hpp"

namespace motley {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kConnection = 4 * kMiB + 8LL * 512 * 8 * 16 + 8LL * 640 * 120 * 8;
constexpr std::int64_t kConnectionsAChannel = 3;  // a ring connection, and a tree's up and down
constexpr std::int64_t kNeighbourChannels = 2;

bool has_extra(const Chip& chip) { return chip.kind != "cpu"; }

std::int64_t channels_inside(FabricKind kind) {
  switch (kind) {
    case FabricKind::nvswitch:
      return 24;
    case FabricKind::nvlink_mesh:
      return 12;
    case FabricKind::xgmi_mesh:
      return 28;
    case FabricKind::pcie:
    case FabricKind::loopback:
      return 2;
  }
  return 2;
}

// Bytes of buffers that each member of a group has for the group.
std::int64_t buffers_of(const Program& program, const Cluster& cluster, const Group& group) {
  if (group.ranks.size() < 2) return 0;
  std::map<int, std::int64_t> members;  // by node
  for (Rank rank : group.ranks) ++members[cluster.chip_node[at(program.ranks[rank].chip)]];
  const auto first = at(program.ranks[group.ranks[0]].chip);
  if (members.size() == 1)
    return channels_inside(cluster.groups[at(cluster.chip_group[first])].inside.kind) * kConnectionsAChannel *
           kConnection;
  std::int64_t most = 0;
  for (const auto& [node, count] : members) most = std::max(most, count);
  return std::min<std::int64_t>(16, 2 * most) * kConnectionsAChannel * 2 * kConnection;
}

bool copies(const RankProgram& rank_program, const Instruction& instruction) {
  const auto* collective = instruction.as<Collective>();
  if (collective == nullptr) return false;
  if (collective->parts > 1) return true;
  if (!collective->shard) return false;
  if (collective->kind == CollectiveKind::reduce_scatter)
    return rank_program.shards[*collective->shard].gradient_part.has_value();
  return makes_tensors(rank_program, instruction);
}

}  // namespace

IdTable<Rank, std::int64_t> communication_buffers(const Program& program, const Cluster& cluster) {
  IdTable<GroupId, std::int64_t> group_buffers;
  for (const Group& group : program.groups) group_buffers.add(buffers_of(program, cluster, group));
  IdTable<Rank, std::int64_t> buffers;
  for (const RankEntry& entry : program.ranks) {
    std::int64_t bytes = 0;
    const std::set<std::optional<GroupId>> groups(entry.groups.begin(), entry.groups.end());
    for (std::optional<GroupId> group : groups)
      if (group) bytes += group_buffers[*group];
    const std::set<std::optional<Rank>> peers(entry.peers.begin(), entry.peers.end());
    for (std::optional<Rank> peer : peers) {
      if (!peer) continue;
      const bool inside =
          cluster.chip_node[at(entry.chip)] == cluster.chip_node[at(program.ranks[*peer].chip)];
      bytes += kNeighbourChannels * (inside ? 1 : 2) * kConnection;
    }
    buffers.add(has_extra(cluster.chip_of(entry.chip)) ? bytes : 0);
  }
  return buffers;
}

std::int64_t copied_buckets(const RankProgram& rank_program) {
  std::int64_t bytes = 0;
  for (const Stream& stream : rank_program.streams) {
    std::int64_t largest = 0;
    for (const Instruction& instruction : stream.instructions)
      if (copies(rank_program, instruction)) largest = std::max(largest, payload_bytes(instruction));
    bytes += largest;
  }
  return bytes;
}

std::int64_t reserved_by_runtime(const Chip& chip) {
  return static_cast<std::int64_t>(chip.software.reserved_memory.value);
}

std::int64_t lost_to_fragmentation(const Chip& chip, std::int64_t activations_peak, double share) {
  if (!has_extra(chip)) return 0;
  return static_cast<std::int64_t>(share * static_cast<double>(activations_peak));
}

}  // namespace motley
