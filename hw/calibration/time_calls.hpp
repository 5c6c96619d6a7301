// Times calls of a communicator as nccl-tests and the OSU benchmarks do: many in a row, of any size, by every
// algorithm, over each path. Every rank calls it at the same time, and all agree on each time: a call takes as long as
// on the rank where it took longest. Read next: hw/communicator/communicator.hpp, tools/commands/bench.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "hw/communicator/communicator.hpp"

namespace motley {

// A collective, or a message from the first rank to the second and back.
struct TimedCall {
  std::optional<CollectiveKind> kind;  // nothing: a message
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  Path path = Path::tcp;                 // that was allowed
  PathSet taken = {};                    // by what this rank sends and receives: small messages go over TCP
  MemoryKind memory = MemoryKind::host;  // in which the bytes lie, on all ranks
  std::size_t bytes = 0;                 // S of CollectiveKind, or of the message
  double seconds = 0;                    // of one call, or of one way of a message: the median of all rounds
  double spread = 0;                     // half of what lies between the quartiles, as a share of the median
  double cpu_s = 0;                      // of all ranks together, for one call
  // What the ports of a rank carry at best, as nccl-tests count it.
  double algorithm_bandwidth() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
  double bus_bandwidth(int ranks) const;
};

struct TimeCallsOptions {
  std::vector<std::optional<CollectiveKind>> kinds;
  std::vector<CollectiveAlgorithm> algorithms;  // those that do a kind are tried; empty: the plain one
  std::vector<Path> paths;
  std::vector<std::size_t> bytes;
  std::vector<MemoryKind> memories = {MemoryKind::host};  // each size is timed in one after the other
  double seconds_a_time = 0.02;                           // one time is the mean of as many calls
  int rounds = 5;
  // Called on every rank after each result.
  std::function<void(const TimedCall&)> on_result = {};
};

// Throws RunFailure where there is no such memory.
std::vector<TimedCall> time_calls(Communicator& ranks, const TimeCallsOptions& options);

}  // namespace motley
