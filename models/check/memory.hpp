// The memory that a chip of each stage needs at its peak, counted by running the Program in no time. Read next:
// models/check/memory_extra.hpp, models/check/memory_kept.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"
#include "models/transformer/train.hpp"
#include "models/world/null_world.hpp"

namespace motley {

struct StageMemory {
  int stage = 0;
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
  std::int64_t activations_peak = 0;  // all other tensors of the Program, at the moment of the peak
  std::int64_t logits = 0;            // the part of activations_peak that is logits
  // Memory of a chip beyond the tensors of the Program: models/check/memory_extra.hpp describes each.
  std::int64_t buffers = 0, buckets = 0, runtime = 0, fragmentation = 0;
  std::int64_t peak = 0;  // all of the above at the peak
  std::int64_t capacity = 0;
  // Offloaded bytes: the most that one node keeps for its ranks of all stages, and the memory of the node (0:
  // unknown).
  std::int64_t host = 0, host_capacity = 0;
};

// Which program's count of used memory: the driver's (nvidia-smi), that of the software's allocator (PyTorch's
// max_memory_reserved), or the tensors in it (max_memory_allocated).
enum class Counted : std::uint8_t { device, reserved, allocated };
std::int64_t peak_of(const StageMemory& stage, Counted counted);

// Peak of each stage. It is exact when streams run in the order of the Null world (a topological order of the
// Program); a World that overlaps more can need more, by at most p2p_buffers messages. `fragmentation`:
// Train::fragmentation.
std::vector<StageMemory> memory_by_stage(const Program& program, const Cluster& cluster,
                                         double fragmentation = kFragmentation);

// Bytes that one rank holds while the Program runs.
struct RankMemory {
  std::int64_t live = 0, peak = 0;
  std::int64_t live_logits = 0, logits = 0;  // live_logits: now; logits: in the peak
  std::int64_t live_host = 0, host = 0;      // offloaded activations: now, and at their peak
};

// Runs the Program in no time and fills in the memory of each rank. Returns the ranks that are blocked (empty: the
// Program ends).
std::vector<Blocked> run_null(const Program& program, IdTable<Rank, RankMemory>& memory);
// Sums the figures of ranks up by stage.
std::vector<StageMemory> by_stage(const Program& program, const Cluster& cluster,
                                  const IdTable<Rank, RankMemory>& memory, double fragmentation);

}  // namespace motley
