// Communication slows computes: while a transfer or a collective of its rank is under way, a compute advances at
// 1/overlap_slowdown of the rate that it has alone. The compute keeps its remaining work, and its rate changes whenever
// the first communication begins or the last one ends. Ranks on chips without that figure cost nothing. Overlap does
// not know what moves or how fast. No source says how much computes slow communication, so they do not.
// Private to sim/world/sim_world.cpp. Read next: models/cluster/chip.hpp.
#pragma once

#include <memory>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"
#include "sim/clock/clock.hpp"

namespace motley {

class Overlap {
 public:
  Overlap(const Program& program, const Cluster& cluster, Clock& clock);
  // begin(): both sides of a communication of `rank` have arrived. end(): that communication has ended.
  void begin(Rank rank);
  void end(Rank rank);
  // Lets the time of a compute pass that takes `seconds` when alone.
  Task compute(Rank rank, double seconds);

 private:
  // Waits for an instant, or until the pace changes before that.
  class Pace final : public Clock::Alarm {
   public:
    explicit Pace(Clock& clock) : clock_(clock) {}
    auto until(double at_s);
    void change();
    bool changed() const { return changed_; }  // whether the pace changed before the last instant waited for
    void ring() override;

   private:
    Clock& clock_;
    Parking parking_;
    bool changed_ = false;
  };
  struct Slowed {
    double factor = 1;
    int under_way = 0;
    std::vector<Pace*> computes;  // those under way
  };
  Slowed* slowed_of(Rank rank) const { return slowed_.empty() ? nullptr : slowed_[rank].get(); }
  Clock& clock_;
  IdTable<Rank, std::unique_ptr<Slowed>> slowed_;  // empty: no chip has the figure
};

}  // namespace motley
