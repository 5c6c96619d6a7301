// Bytes on the move. A flow keeps the rate that it has alone while each of its links has room for what all flows on it
// take when they are alone: its end is one alarm. Only when a link is asked for more than it has are the flows that
// cross it handed to SimGrid, which shares links max-min. So a flow that nobody contends with costs no more than a
// sleep, and the answer is the one that SimGrid alone would give. Read next: sim/fabric/simgrid_fabric.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sim/clock/clock.hpp"
#include "sim/fold/fabric.hpp"

namespace motley {

class Flows;
class SimGridFabric;

// Bytes of one message on one lane. co_await flow->arrival() goes on when they have all arrived.
class Flow final : public Clock::Alarm {
 public:
  struct Arrival {
    Flow& flow;
    std::coroutine_handle<> waiting = {};
    Arrival* next = nullptr;
    bool await_ready() const { return flow.arrived_; }
    void await_suspend(std::coroutine_handle<> coroutine) {
      waiting = coroutine;
      next = std::exchange(flow.waiting_, this);
    }
    void await_resume() const {}
  };
  Arrival arrival() { return {*this}; }

 private:
  friend class Flows;
  void ring() override;

  Flows* flows_ = nullptr;
  const Fabric::Path* path_ = nullptr;
  double end_s_ = 0;
  std::vector<std::uint32_t> places_;  // where it is in Load::free_flows of each link; empty: SimGrid has it
  bool arrived_ = false;
  Arrival* waiting_ = nullptr;
  std::size_t place_ = 0;  // in Flows::under_way_
};

class Flows {
 public:
  // `all_shared`: hands every flow to SimGrid. The clock and the fabric must outlive it.
  Flows(Clock& clock, const Fabric& fabric, bool all_shared);
  ~Flows();
  Flows(const Flows&) = delete;
  Flows& operator=(const Flows&) = delete;

  // Starts moving the bytes now, without latency.
  std::shared_ptr<Flow> start(std::int32_t lane, std::int64_t bytes);
  // Lets time pass until nothing happens any more, or the clock has stopped.
  void run();

 private:
  friend class Flow;
  // What the flows on a link take.
  struct Load {
    double asked = 0;               // bytes/s, if each moved as fast as it does alone
    std::int32_t crossing = 0;      // how many flows that is
    std::vector<Flow*> free_flows;  // those that SimGrid does not have
  };
  bool is_asked_too_much(std::int32_t link) const;
  void end_due(std::int32_t link);
  void share_link(std::int32_t link);
  void share(Flow& flow, double bytes);
  void join(Flow& flow);
  void leave(Flow& flow);
  void arrive(Flow& flow);

  Clock& clock_;
  const Fabric& fabric_;
  const bool all_shared_;
  std::vector<Load> loads_;                // as Fabric::capacities()
  std::unique_ptr<SimGridFabric> shared_;  // made when links are first shared
  std::vector<std::shared_ptr<Flow>> under_way_;
};

}  // namespace motley
