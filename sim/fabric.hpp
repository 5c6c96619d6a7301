// A Cluster as SimGrid sees it: one host a rank, one link a directed link id in use, and exactly the routes that
// motley::route() gives. Memory is O(links in use). It prices latencies by models/network_cost and leaves bandwidth to
// SimGrid's max-min sharing. It knows nothing of instructions: see sim/world.cpp. Include it only in sim/.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <simgrid/s4u.hpp>
#include <unordered_map>
#include <vector>

#include "models/cluster.hpp"
#include "models/network_cost.hpp"
#include "models/program.hpp"

namespace motley {

class FabricZone;

class Fabric {
 public:
  // Which link stands for a directed link id, and with which part of its bandwidth. Not set: itself, all of it.
  struct Share {
    int link = -1;
    double part = 1;
  };
  using Shares = std::unordered_map<int, Share>;

  // Makes the Engine's platform; at most one Fabric a process. `engine` must be fresh (see make_engine).
  Fabric(const Program& program, const Cluster& cluster, Shares shares);

  simgrid::s4u::Host* host_of(Rank rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
  // Declares, before seal(), that messages will go this way. Throws Refusal("unreachable").
  void add_route(Rank from, Rank to);
  // Declares the flows of a ring over the group's ranks: member i to member i+1. They pay no latency here (the whole
  // collective's is one delay), and where the edges are unlike none is faster than `gang_rate` (bytes/s): a ring moves
  // at its slowest edge, and healthy NICs must not be freed early.
  void add_ring(int group, const std::vector<Rank>& ranks, double gang_rate);
  void seal();

  // A message: starts now, ends after route latency + message_overhead_s + bytes shared max-min on its links.
  simgrid::s4u::CommPtr message(Rank from, Rank to, std::int64_t bytes) const;
  // The flow from member `edge` of a declared ring to the next.
  simgrid::s4u::CommPtr ring_flow(int group, int edge, std::int64_t bytes) const;

 private:
  friend class FabricZone;
  struct Path {
    std::vector<simgrid::kernel::resource::StandardLinkImpl*> links;
    Route route;
    Transport transport;
    bool pays_latency = true;
  };
  Path make_path(Rank from, Rank to);
  static std::vector<double> effective_rates(const std::vector<Path>& edges);
  simgrid::s4u::Host* make_host();
  simgrid::s4u::Link* link_of(int id);
  simgrid::s4u::Link* cap_of(double rate);
  const Path& path(unsigned long from, unsigned long to) const;
  double latency_s(double bytes, const simgrid::s4u::Host& from, const simgrid::s4u::Host& to) const;

  const Program& program_;
  const Cluster& cluster_;
  Shares shares_;
  FabricZone* zone_;
  std::vector<simgrid::s4u::Host*> hosts_;
  std::unordered_map<int, std::vector<simgrid::s4u::Host*>> rings_;  // by group: an endpoint a member
  std::unordered_map<int, simgrid::s4u::Link*> links_;
  std::map<double, simgrid::s4u::Link*> caps_;     // by rate
  std::unordered_map<std::uint64_t, Path> paths_;  // by the two endpoints' ids in the zone
  int hosts_made_ = 0;
};

// SimGrid's one Engine, set for a plain fluid fabric, silent, for about so many actors. A process has one; a second
// call is a bug of the caller.
simgrid::s4u::Engine& make_engine(std::size_t actors);

}  // namespace motley
