// What happened: the same record from every World. One file format, which is at once what Perfetto
// opens, a replay tape, and what `motley compare` reads: Chrome trace JSON whose args carry the
// exact values. Read next: models/report/report.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/program/program.hpp"
#include "models/world/world.hpp"

namespace motley {

// Why an instruction began later than its stream was free.
enum class Waited : std::uint8_t {
  no,
  step,  // for `waited_for` (same rank): the last of its `after` to end
  peer,  // send, recv: the other side was not there yet (waited_rank); collective: its last member
};

struct TraceEvent {
  Step step;
  double free_s = 0;     // the stream was free (its earlier step had ended)
  double begin_s = 0;    // all of `after` had ended: posted (transfers, collectives) or started (compute)
  double matched_s = 0;  // transfers, collectives: every side had posted; else = begin_s
  double end_s = 0;
  Waited waited = Waited::no;
  Step waited_for;
  Rank waited_rank = -1;  // -1: it waited for no rank
  // As really done, not copied from the Program, where the World can know.
  std::int64_t bytes = 0;  // payload
  double flops = 0;
  std::int64_t allocated = 0, freed = 0, peak = 0;
  bool operator==(const TraceEvent&) const = default;
};

// A rank whose events stand for those of as many ranks, itself included, that must behave alike.
struct StandIn {
  Rank rank = 0;
  std::int64_t count = 1;
  bool operator==(const StandIn&) const = default;
};

struct Trace {
  std::string strategy_hash, program_hash;
  std::string world;  // "sim", "real"; mixed and replay are "sim" with measured ranks
  std::vector<Rank> measured_ranks;
  std::vector<StandIn> stand_ins;  // folded: every rank that has events; else empty
  std::vector<TraceEvent> events;  // by rank, stream, index: the order of the Program
  bool operator==(const Trace&) const = default;
};

// Sorted by (rank, stream, index).
void sort_events(Trace& trace);
// Perfetto: process = rank, thread = stream, slices, flow send -> recv, counter "memory". `ranks`
// empty: all.
void write_trace(const Trace& trace, const Program& program, const std::string& path,
                 const std::vector<Rank>& ranks = {});
Trace read_trace(const std::string& path);  // exact inverse on what was written
// The Program that a written trace is of: it stands in the trace's head, so that a trace explains itself.
Program read_program_of_trace(const std::string& path);

}  // namespace motley
