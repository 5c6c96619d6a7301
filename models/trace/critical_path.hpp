// Why a step took as long as it did: the chain of instructions, back from the last to end, each of which let the next
// begin. Between two of them nothing is waited for that the Program names: the gap. In virtual time there is none.
// It does not say what would happen were a link shorter: another chain may be nearly as long. Read next:
// models/report/report.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "models/trace/trace.hpp"

namespace motley {

// How a link follows from the one before it.
enum class Joint : std::uint8_t {
  first,   // from nothing: the first of the chain
  stream,  // its stream was busy with it
  after,   // it is one of its `after`
  // The same, but of the side that came last to the transfer or collective: `joined` of the link.
  peer_stream,
  peer_after,
};

struct CriticalLink {
  Step step;
  Step
      joined;  // the side that came last: `step` itself, its matched send or recv, a member of its collective
  Joint joint = Joint::first;
  double gap_s = 0;  // from the end of the link before (the first: from the begin of the iteration)
  double begin_s = 0, end_s = 0;  // a transfer or collective begins when all sides are there
};

struct CriticalPath {
  std::vector<CriticalLink> links;  // in the order of time; gaps and durations add up to the iteration
  double duration_s() const;
  double gap_s() const;
};

// In a folded Trace a stand-in's link stands for its like. Of several that ended last: the lowest rank, stream, index.
CriticalPath find_critical_path(const Program& program, const Trace& trace);

}  // namespace motley
