// check(): what is proved of a Program before any World runs it. It does not prove that kernels
// compute the right function (tests/two_worlds does) nor that durations are right (tests/validation
// does).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "models/program.hpp"

namespace motley {

struct StageMemory {
  int stage = 0;
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
  std::int64_t activations_peak = 0;  // all else that the Program names, at the moment of the peak
  std::int64_t logits = 0;            // part of that
  // What the Program does not name and a chip has beyond it: models/memory_extra.hpp says what each is.
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

struct Blocked {
  Rank rank = 0;
  int stream = 0, index = 0;
  std::string why;  // "waits for rank 3 to send activation of micro-batch 2"
};

// Runs the Program in no time: a fixpoint over streams with rendezvous transfers. Returns who is
// stuck (empty: it ends). Programs are deterministic dataflow, so one order stands for all.
std::vector<Blocked> find_deadlock(const Program& program);

// Throws Refusal: unmatched transfer, unequal bytes, collective members that disagree, deadlock
// (exit 1), out of memory (exit 3: which stage, how many GiB, what would help), a tensor freed
// twice or never.
// Returns the memory it found, so that nobody runs the Null world twice.
std::vector<StageMemory> check(const Program& program, const Cluster& cluster,
                               double fragmentation = kFragmentation);

}  // namespace motley
