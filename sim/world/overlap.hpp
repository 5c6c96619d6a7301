// Communication slows computes: while a transfer or a collective of its rank is under way, a compute advances at
// 1/overlap_slowdown of the rate that it has alone. The compute keeps its remaining work, and its rate changes whenever
// the first communication begins or the last one ends. Ranks on chips without that figure cost nothing. Overlap does
// not know what moves or how fast. No source says how much computes slow communication, so they do not.
// Private to sim/world/sim_world.cpp. Read next: models/cluster/chip.hpp.
#pragma once

#include <memory>
#include <simgrid/s4u.hpp>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley {

class Overlap {
 public:
  Overlap(const Program& program, const Cluster& cluster);
  // begin(): both sides of a communication of `rank` have arrived. end(): that communication has ended.
  void begin(Rank rank);
  void end(Rank rank);
  // Lets the time of a compute pass that takes `seconds` when alone. Call it from an actor of the rank.
  void compute(Rank rank, double seconds);

 private:
  struct Slowed {
    double factor = 1;
    int under_way = 0;
    simgrid::s4u::MutexPtr mutex = simgrid::s4u::Mutex::create();
    simgrid::s4u::ConditionVariablePtr changed = simgrid::s4u::ConditionVariable::create();
  };
  Slowed* slowed_of(Rank rank) const { return slowed_.empty() ? nullptr : slowed_[rank].get(); }
  IdTable<Rank, std::unique_ptr<Slowed>> slowed_;  // empty: no chip has the figure
};

}  // namespace motley
