// A collective, or messages between pairs, that somebody timed and published, as a row of a table: from what is printed
// to a cluster and a Program of that one instruction, which a World can run. It predicts nothing itself. Read next:
// models/collective_errors.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/compile.hpp"
#include "models/program.hpp"

namespace motley {

// Columns: id, collective (all_reduce, reduce_scatter, all_gather, all_to_all, point_to_point), cluster (as a scenario
// names one), nodes, chips, bytes, seconds, bus_rate, algorithm, form, calls (queued or launched), source, library,
// measured_by, date. Of `seconds` and `bus_rate` (GB/s) one is printed; an empty algorithm: the library chose.
struct MeasuredCollective {
  std::string id, what, cluster, source, library, date;
  std::optional<CollectiveKind>
      kind;  // nothing: every chip of the first half sends to its like in the second
  int nodes = 1, chips = 2;
  std::int64_t bytes = 0;  // payload as nccl-tests counts it; of a message
  double seconds = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic;  // what the library takes by itself
  std::string form;     // of the plateau (models/collective_errors.hpp); empty: not its largest message
  bool queued = false;  // calls are queued ahead, as in training; else launched one by one
};
// Refuses ("bad-csv") what no row may say.
std::vector<MeasuredCollective> read_measured_collectives(const std::string& path);

// GB/s that messages of so many bytes move on the slowest of a ring's links in that time, as nccl-tests counts
// (2(R-1)/R S/t of an all_reduce); of pairs, all together.
double bus_rate(const MeasuredCollective& of, double seconds);
// What a call takes that nobody queued.
double launch_s(const MeasuredCollective& of);

struct CollectiveRun {
  Job job;
  Program program;
};
CollectiveRun make_run(const MeasuredCollective& of);

}  // namespace motley
