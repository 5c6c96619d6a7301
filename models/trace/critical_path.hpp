// Why a step took as long as it did: the chain of instructions, back from the one that ended last, in which each let
// the next begin. A gap between two of them is time in which the rank waited for nothing in the Program; in virtual
// time there is none. The chain does not tell what a shorter link would gain: another chain may be nearly as long.
// Read next: models/report/report.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "models/trace/trace.hpp"

namespace motley {

// The reason why a link begins after the one before it.
enum class Joint : std::uint8_t {
  first,   // the link is the first of the chain
  stream,  // the link before was earlier on the same stream
  after,   // the link before is in the `after` of this one
  // As stream and after, for the side that came last to the transfer or collective: CriticalLink::joined.
  peer_stream,
  peer_after,
};

struct CriticalLink {
  Step step;
  Step joined;  // the side that came last: `step` itself, its matched send or recv, or a collective's member
  Joint joint = Joint::first;
  double gap_s = 0;  // time after the link before (in the first link: after the begin of the iteration)
  double begin_s = 0, end_s = 0;  // a transfer or collective begins when all sides are there
};

// Where steps overlap (Trace::period_s) the chain goes back into the steps before, and one period of it is kept: what
// goes round from step to step. Its first and last link may be parts of instructions.
struct CriticalPath {
  std::vector<CriticalLink> links;  // in the order of time; gaps and durations add up to step_s()
  double duration_s() const;
  double gap_s() const;
};

// In a folded Trace the link of a rank stands for those of its class. If several events end last, the chain ends with
// the lowest rank, stream, index.
CriticalPath find_critical_path(const Program& program, const Trace& trace);

}  // namespace motley
