// A published measurement of a collective, or of messages between pairs, as a row of a table. The row becomes a
// cluster and a Program with that one instruction, which a World can run. Nothing is predicted here. Read next:
// models/published/collective_errors.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/compile/one_call.hpp"
#include "models/program/program.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// Columns: id, collective (all_reduce, reduce_scatter, all_gather, all_to_all, point_to_point), cluster (named as in
// a scenario), nodes, chips, bytes, seconds, bus_rate, algorithm, form, calls (queued or launched), source, library,
// measured_by, date. A row has one of `seconds` and `bus_rate` (GB/s); an empty algorithm: the library chose.
struct MeasuredCollective {
  std::string id, what, cluster, source, library, date;
  // Nothing: every chip of the first half sends to the chip at the same place in the second half.
  std::optional<CollectiveKind> kind;
  int nodes = 1, chips = 2;
  std::int64_t bytes = 0;  // payload as nccl-tests counts it, or size of each message
  double seconds = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic;  // automatic: the library chose
  // The model's form for the largest messages of a sweep (models/published/collective_errors.hpp); empty: the row is
  // not one of these.
  std::string form;
  bool queued = false;  // true: calls are queued ahead, as in training; false: launched one by one
  struct Places {
    Location cluster, chips, form;
  };
  Places places;  // where the table says these
};
// Reads a table. Refuses ("bad-csv") invalid rows.
std::vector<MeasuredCollective> read_measured_collectives(const std::string& path);

// Bus rate in GB/s as nccl-tests counts it: the bytes on the slowest link of a ring in that time, 2(R-1)/R S/t for an
// all_reduce. For messages between pairs it is the sum over all pairs.
double bus_rate(const MeasuredCollective& collective, double seconds);
// Seconds to launch a call; 0 if it was queued ahead.
double launch_s(const MeasuredCollective& collective);

struct CollectiveRun {
  Job job;
  Program program;
};
// The run of one call among these chips of a cluster, as every measured collective is predicted. It takes last_end_s()
// of its simulation, and launch_s().
CollectiveRun run_of(Cluster cluster, const OneCall& call, const std::vector<int>& chips,
                     CollectiveAlgorithm algorithm);
double launch_s(bool queued);
CollectiveRun make_run(const MeasuredCollective& measured);

}  // namespace motley
