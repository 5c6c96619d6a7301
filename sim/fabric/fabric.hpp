// A Cluster as SimGrid sees it: a host for each rank that runs, a link for each class of links in use, and for each
// class of lanes the path that one of them takes. It prices latencies by models/cost and leaves bandwidth to
// SimGrid's max-min sharing. It knows nothing about instructions: see sim/simulate.cpp. Include it only in sim/.
#pragma once

#include <cstdint>
#include <simgrid/s4u.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/cost/network_cost.hpp"
#include "models/program/program.hpp"
#include "sim/fabric/fold.hpp"

namespace motley {

class FabricZone;

class Fabric {
 public:
  // Who waits for a message's latency. SimGrid 3.32 forgets links when the latencies of several flows end at one
  // instant (its System::enable_var looks at a variable's first constraint only) and then gives out more bandwidth than
  // a link has. So the Sim world waits itself (`callers`) and starts flows without latency.
  enum class Latency : std::uint8_t { callers, flows };

  // Makes the platform of the Engine, which must be fresh (see make_engine); a process makes at most one Fabric. The
  // Fabric keeps references to its arguments.
  Fabric(const Program& program, const Cluster& cluster, const Folding& folding,
         Latency latency = Latency::callers);

  // The host of a rank that runs.
  simgrid::s4u::Host* host_of(Rank rank) const { return hosts_[rank]; }
  // The two hosts between which SimGrid's Comms of a lane run. They have no other use.
  std::pair<simgrid::s4u::Host*, simgrid::s4u::Host*> ends_of(std::int32_t lane) const;
  // Seconds before the bytes move: route latency + message_overhead_s. On the lanes of a collective it leaves out the
  // kappa term, and is zero where the group posts the collective as a whole.
  double latency_s(std::int32_t lane, std::int64_t bytes) const;
  // Starts moving the bytes now, without latency; they share their links max-min.
  simgrid::s4u::CommPtr start(std::int32_t lane, std::int64_t bytes) const;

 private:
  friend class FabricZone;
  struct Path {
    // A link that the class of lanes crosses several times is here several times: Crossing::times / parts.
    std::vector<simgrid::kernel::resource::StandardLinkImpl*> links;
    Route route;
    MessageCost transport;
    bool pays_latency = true;
  };
  void make_hosts();
  void make_paths(const Crossings& crossings);
  simgrid::s4u::Link* link_of(std::int32_t link_class, std::int64_t parts);
  void add_cap(Path& path, const Lane& lane);
  const Path& path(unsigned long from, unsigned long to) const;
  static double latency_s(const Path& path, std::int64_t bytes);
  void let_flows_pay();

  const Program& program_;
  const Cluster& cluster_;
  const Folding& folding_;
  const Latency latency_;
  FabricZone* zone_;
  std::size_t side_;  // class of lanes c runs from senders_[c / side_] to receivers_[c % side_]
  std::vector<simgrid::s4u::Host*> senders_, receivers_;         // the zone's first hosts
  IdTable<Rank, simgrid::s4u::Host*> hosts_;                     // null: the rank does not run
  std::vector<Path> paths_;                                      // indexed by class of lanes
  std::unordered_map<std::int32_t, simgrid::s4u::Link*> links_;  // by class of links
};

// Makes SimGrid's Engine, silent and set for a plain fluid fabric. `actors`: about how many it will run. A process has
// one Engine: a second call is a bug of the caller.
simgrid::s4u::Engine& make_engine(std::size_t actors);

}  // namespace motley
