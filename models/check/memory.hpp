// What a chip of each stage holds at its peak, counted by running the Program in no time.
// Read next: models/check/memory_extra.hpp, models/check/memory_kept.hpp.
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
  std::int64_t activations_peak = 0;  // all else that the Program names, at the moment of the peak
  std::int64_t logits = 0;            // part of that
  // What the Program does not name and a chip has beyond it: models/check/memory_extra.hpp says what each is.
  std::int64_t buffers = 0, buckets = 0, runtime = 0, fragmentation = 0;
  std::int64_t peak = 0;  // of everything
  std::int64_t capacity = 0;
  // Offloaded: the most that one node keeps for its ranks of all stages, and what it has (0: not said).
  std::int64_t host = 0, host_capacity = 0;
};

// How full a chip is said to be: what its driver says (nvidia-smi), what the software's allocator took of that
// (PyTorch's max_memory_reserved), or the tensors in it (max_memory_allocated).
enum class Counted : std::uint8_t { device, reserved, allocated };
std::int64_t peak_of(const StageMemory& stage, Counted counted);

// Peak per stage: exact when streams run in the order of the Null world (a topological order of the
// Program); a World that overlaps more can hold more, by at most p2p_buffers messages.
// `fragmentation`: Train::fragmentation.
std::vector<StageMemory> memory_by_stage(const Program& program, const Cluster& cluster,
                                         double fragmentation = kFragmentation);

// What one rank holds while the Program runs, in bytes.
struct RankMemory {
  std::int64_t live = 0, peak = 0;
  std::int64_t live_logits = 0, logits = 0;  // of the peak
  std::int64_t live_host = 0, host = 0;      // offloaded activations, and the most there ever were
};

// Runs the Program in no time and fills what each rank held; returns who is stuck (empty: it ends).
std::vector<Blocked> run_null(const Program& program, std::vector<RankMemory>& memory);
// The same figures by stage.
std::vector<StageMemory> by_stage(const Program& program, const Cluster& cluster,
                                  const std::vector<RankMemory>& memory, double fragmentation);

}  // namespace motley
