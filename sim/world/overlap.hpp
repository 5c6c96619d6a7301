// Computes that communication slows: while a transfer or a collective of its rank is under way, a compute advances by
// 1/overlap_slowdown of what it does alone. It keeps its remaining work, and is rescaled whenever the first begins or
// the last ends. Ranks on chips without that figure cost nothing. It knows nothing of what moves and how fast; whom
// communication in turn is slowed by, no source says. Private to sim/world/sim_world.cpp. Read next:
// models/cluster/chip.hpp.
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
  // Communication of that rank is under way: both sides there, until it ends.
  void begin(Rank rank);
  void end(Rank rank);
  // Passes the time of a compute that alone takes so many seconds; call it from an actor of the rank.
  void compute(Rank rank, double seconds);

 private:
  struct Slowed {
    double factor = 1;
    int under_way = 0;
    simgrid::s4u::MutexPtr mutex = simgrid::s4u::Mutex::create();
    simgrid::s4u::ConditionVariablePtr changed = simgrid::s4u::ConditionVariable::create();
  };
  Slowed* slowed_of(Rank rank) const {
    return slowed_.empty() ? nullptr : slowed_[static_cast<std::size_t>(rank)].get();
  }
  std::vector<std::unique_ptr<Slowed>> slowed_;  // by rank; empty: no chip has the figure
};

}  // namespace motley
