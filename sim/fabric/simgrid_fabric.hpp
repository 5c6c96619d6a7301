// The Fabric in SimGrid, which shares links max-min among the flows that it is given. It is asked only about flows that
// contend: see sim/fabric/flows.hpp. Include it only in sim/.
#pragma once

#include <cstdint>
#include <set>
#include <simgrid/s4u.hpp>
#include <utility>
#include <vector>

#include "sim/fold/fabric.hpp"

namespace motley {

class FabricZone;

class SimGridFabric {
 public:
  // Who waits for a message's latency. SimGrid 3.32 forgets links when the latencies of several flows end at one
  // instant (its System::enable_var looks at a variable's first constraint only) and then gives out more bandwidth than
  // a link has. So the Sim world waits itself (`callers`) and starts flows without latency.
  enum class Latency : std::uint8_t { callers, flows };

  // Makes SimGrid's Engine and its platform. A process has one Engine, so it makes at most one SimGridFabric: a second
  // one is a bug of the caller. The Fabric must outlive it.
  explicit SimGridFabric(const Fabric& fabric, Latency latency = Latency::callers);
  SimGridFabric(const SimGridFabric&) = delete;
  SimGridFabric& operator=(const SimGridFabric&) = delete;

  simgrid::s4u::Engine& engine() const { return engine_; }
  // The two hosts between which SimGrid's Comms of a class of lanes run. They have no other use.
  std::pair<simgrid::s4u::Host*, simgrid::s4u::Host*> ends_of(std::size_t lane_class) const;

  // With Latency::flows: a host of each rank, which does one flop a second.
  simgrid::s4u::Host* host_of(Rank rank) const { return hosts_[rank]; }

  // Starts moving the bytes now. `flow` is handed back by advance() when they have arrived.
  void start(std::size_t lane_class, double bytes, void* flow);
  bool idle() const { return under_way_ == 0; }
  // Lets time pass until `until_s` or until flows end, whichever is first, and returns that instant.
  // Adds the flows that have ended to `ended`.
  double advance(double until_s, std::vector<void*>& ended);
  // Brings SimGrid's clock to this instant while no flow is under way.
  void move_to(double now_s);

 private:
  friend class FabricZone;
  std::size_t lane_class(unsigned long from, unsigned long to) const;
  void make_hosts();
  void make_links();
  void let_flows_pay();
  void ended(const simgrid::s4u::Activity& activity);

  const Fabric& fabric_;
  const Latency latency_;
  const double parts_;  // SimGrid's unit of data is a byte divided by this
  simgrid::s4u::Engine& engine_;
  FabricZone* zone_;  // owned by the Engine
  std::size_t side_;  // class of lanes c runs from senders_[c / side_] to receivers_[c % side_]
  std::vector<simgrid::s4u::Host*> senders_, receivers_;  // the zone's first hosts
  IdTable<Rank, simgrid::s4u::Host*> hosts_;
  std::vector<simgrid::s4u::Link*> links_;  // as Fabric::capacities()
  std::vector<simgrid::s4u::Link*> caps_;   // by class of lanes; null: no cap
  std::size_t under_way_ = 0;
  std::vector<simgrid::s4u::CommPtr> ended_;
  std::set<simgrid::s4u::Activity*> stop_;  // SimGrid's run() returns when it is not empty
};

}  // namespace motley
