// Times calls of a communicator as nccl-tests and the OSU benchmarks do: many in a row, of any size, by every
// algorithm, over each path. Every rank calls it at the same time, and all agree on each time: a call takes as long as
// on the rank where it took longest. Read next: hw/communicator/communicator.hpp, tools/commands/bench.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hw/communicator/communicator.hpp"

namespace motley {

// A collective, or a message from the first rank to another one and back.
struct TimedCall {
  std::optional<CollectiveKind> kind = {};  // nothing: a message
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  CollectiveAlgorithm chosen = CollectiveAlgorithm::ring;  // what `automatic` was; else the algorithm itself
  int peer = 1;                                            // the place of a message's other rank
  bool leaves_host = false;                                // of a message: the other rank is on another host
  Path path = Path::tcp;                                   // that was allowed
  PathSet taken = {};                    // by what this rank sends and receives: small messages go over TCP
  MemoryKind memory = MemoryKind::host;  // in which the bytes lie, on all ranks
  std::size_t bytes = 0;                 // S of CollectiveKind, or of the message
  double seconds = 0;                    // of one call, or of one way of a message: the median of all rounds
  double spread = 0;                     // half of what lies between the quartiles, as a share of the median
  double cpu_s = 0;                      // of all ranks together, for one call
  // What all ranks together sent to ranks of other hosts in one call (of a message: one way), as the transport counted
  // it. Nothing: nobody counted.
  std::optional<double> between_hosts_bytes = {};
  // What the ports of a rank carry at best, as nccl-tests count it.
  double algorithm_bandwidth() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
  double bus_bandwidth(int ranks) const;
};

struct TimeCallsOptions {
  std::vector<std::optional<CollectiveKind>> kinds;
  // Those that do a kind are tried, and `automatic` (or `fastest`), where the communicator was told how to choose;
  // empty: the plain one.
  std::vector<CollectiveAlgorithm> algorithms;
  std::vector<Path> paths;
  std::vector<std::size_t> bytes;
  std::vector<MemoryKind> memories = {MemoryKind::host};  // each size is timed in one after the other
  double seconds_a_time = 0.02;                           // one time is the mean of as many calls
  int rounds = 5;
  // By place: the host of each rank. Messages go to the first other rank of the first one's host and to the first rank
  // of another host. Empty: to the second rank.
  std::vector<std::string> hosts = {};
  // What this rank has sent to ranks of other hosts until now; null: nobody counts.
  std::function<std::uint64_t()> sent_between_hosts = {};
  // Called on every rank after each result.
  std::function<void(const TimedCall&)> on_result = {};
};

// The calls of one kind (nothing: messages) without path and size: one for each algorithm, or for each peer.
std::vector<TimedCall> calls_of(std::optional<CollectiveKind> kind, const TimeCallsOptions& options);
// The payload that is timed where `bytes` are asked for: whole elements, and equal parts for all.
std::size_t payload_for(std::optional<CollectiveKind> kind, std::size_t bytes, int ranks);

// Throws RunFailure where there is no such memory.
std::vector<TimedCall> time_calls(Communicator& ranks, const TimeCallsOptions& options);

}  // namespace motley
