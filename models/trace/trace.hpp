// What happened in a step: the same record from every World. The one file format serves Perfetto, replay and `motley
// compare`: Chrome trace JSON whose args have the exact values. Read next: models/report/report.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/base/transfer_path.hpp"
#include "models/program/program.hpp"
#include "models/world/world.hpp"

namespace motley {

// The reason why an instruction began later than its stream was free.
enum class Waited : std::uint8_t {
  no,
  step,  // it waited for `waited_for` (same rank), the last of its `after` to end
  peer,  // it waited for the other side (waited_rank) of a transfer, or for a collective's last member
};

struct TraceEvent {
  Step step;
  double free_s = 0;     // time when the stream was free (its earlier step had ended)
  double begin_s = 0;    // time when all of `after` had ended: it was posted, or a compute started
  double matched_s = 0;  // time when every side had posted (transfers, collectives); else = begin_s
  double end_s = 0;
  Waited waited = Waited::no;
  Step waited_for;
  std::optional<Rank> waited_rank;  // none: it waited for no rank
  // What was really done, not copied from the Program, if the World can know it.
  std::int64_t bytes = 0;  // payload
  double flops = 0;
  std::int64_t allocated = 0, freed = 0, peak = 0;
  PathSet paths;  // that bytes took on which this rank waited; empty: none really moved
  bool operator==(const TraceEvent&) const = default;
};

// One kernel of a compute: when it ran and what it did. A collective inside a compute is one, too.
struct KernelEvent {
  Step step;                // the compute
  std::int32_t kernel = 0;  // its place in Block::kernels
  double begin_s = 0, end_s = 0;
  double flops = 0;        // that were really done, if the World can know it
  std::int64_t bytes = 0;  // moved to and from memory, as the Program counts them
  bool operator==(const KernelEvent&) const = default;
};

// A rank whose events stand for those of `count` ranks that must behave alike, itself included.
struct StandIn {
  Rank rank;
  std::int64_t count = 1;
  bool operator==(const StandIn&) const = default;
};

struct Trace {
  std::string strategy_hash, program_hash;
  std::string world;  // "sim", "real"; mixed and replay are "sim" with measured ranks
  std::vector<Rank> measured_ranks;
  // True: the seconds of each measured rank are those of all ranks that must behave like it.
  bool measured_for_class = false;
  // True: transfers and collectives in which only measured ranks take part take the seconds that moving them took.
  bool measured_transfers = false;
  std::vector<StandIn> stand_ins;  // in a folded trace: every rank that has events; else empty
  // Seconds from one step to the next where ranks begin the next step before others have ended this one; the events are
  // then those of one of many steps, and each rank's next step has the same events that much later. 0: ranks end a step
  // together.
  double period_s = 0;
  std::vector<TraceEvent> events;    // by rank, stream, index: the order of the Program
  std::vector<KernelEvent> kernels;  // by step, then kernel; empty: kernels were not recorded
  bool operator==(const Trace&) const = default;
};

struct StepSpan {
  double begin_s = 0, end_s = 0;
  double seconds() const { return end_s - begin_s; }
  double overlap_s(const StepSpan& other) const;
};
// From the first instant when a stream is free to the last end.
StepSpan span_of(const Trace& trace);
// How long a step takes: from its begin to the next one's.
double step_s(const Trace& trace);

// Sorts by (rank, stream, index), kernels also by their place.
void sort_events(Trace& trace);
bool is_earlier(const KernelEvent& a, const KernelEvent& b);
// The kernel at that place in the block of a compute; null: the Program has none there.
const Kernel* find_kernel(const Program& program, const Step& step, std::int32_t kernel);
// Writes a trace for Perfetto: process = rank, thread = stream, slices with those of their kernels inside, flow
// send -> recv, counter "memory". `ranks` empty: all ranks.
void write_trace(const Trace& trace, const Program& program, const std::string& path,
                 const std::vector<Rank>& ranks = {});
Trace read_trace(const std::string& path);  // the exact inverse of write_trace()
// Reads the Program of a written trace from the trace's head.
Program read_program_of_trace(const std::string& path);

}  // namespace motley
