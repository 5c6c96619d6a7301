// A collective, or messages between pairs, that somebody timed and published, as a row of a table: from what is printed
// to a cluster and a Program of that one instruction, which a World can run. It predicts nothing itself. Read next:
// models/published/collective_errors.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/program/program.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// Columns: id, collective (all_reduce, reduce_scatter, all_gather, all_to_all, point_to_point), cluster (as a scenario
// names one), nodes, chips, bytes, seconds, bus_rate, algorithm, form, calls (queued or launched), source, library,
// measured_by, date. Of `seconds` and `bus_rate` (GB/s) one is printed; an empty algorithm: the library chose.
struct MeasuredCollective {
  std::string id, what, cluster, source, library, date;
  // Nothing: every chip of the first half sends to the chip of the same place in the second half.
  std::optional<CollectiveKind> kind;
  int nodes = 1, chips = 2;
  std::int64_t bytes = 0;  // the payload as nccl-tests counts it, or the size of each message
  double seconds = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic;  // automatic: the library chose
  // The form that the model takes for the largest messages of a sweep (models/published/collective_errors.hpp); empty:
  // this is not among them.
  std::string form;
  bool queued = false;  // calls are queued ahead, as in training; else launched one by one
};
// Refuses ("bad-csv") what no row may say.
std::vector<MeasuredCollective> read_measured_collectives(const std::string& path);

// Bus rate in GB/s as nccl-tests counts it: what moves on the slowest link of a ring in that time, 2(R-1)/R S/t for an
// all_reduce. For messages between pairs it is the sum over all pairs.
double bus_rate(const MeasuredCollective& collective, double seconds);
// Seconds that a call takes besides, where nobody queued it ahead; 0 where it was queued.
double launch_s(const MeasuredCollective& collective);

struct CollectiveRun {
  Job job;
  Program program;
};
CollectiveRun make_run(const MeasuredCollective& measured);

}  // namespace motley
