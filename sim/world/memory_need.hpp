// What memory a simulation will need, said before it takes it: costs of each rank, instruction, lane and link, which
// were measured (tests/sim/world/test_memory_need.cpp holds them to a factor of 1.5). It counts, and measures nothing.
// Read next: sim/world/options.hpp.
#pragma once

#include <cstdint>

#include "models/program/program.hpp"
#include "sim/fold/fold.hpp"

namespace motley {

struct MemoryNeed {
  double bytes = 0;               // of the whole process, from reading the scenario to the report
  std::int64_t ranks = 0;         // ranks that run: all of them, or one of each class
  std::int64_t instructions = 0;  // of those ranks
  std::int64_t lanes = 0;         // paths of bytes, of all ranks
};

// What the process takes whatever it simulates.
inline constexpr double kProcessBytes = 4.2e7;

// At least this much, when the lanes are counted and not yet made; ranks and instructions are not known.
MemoryNeed least_memory_need(const Job& job, const Program& program, std::int64_t lanes);
MemoryNeed memory_need(const Job& job, const Program& program, const Folding& folding);

}  // namespace motley
