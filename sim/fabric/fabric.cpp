#include "sim/fabric/fabric.hpp"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <simgrid/kernel/resource/NetworkModelIntf.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <string>
#include <unordered_set>
#include <utility>

#include "models/base/refusal.hpp"

namespace motley {

namespace sg = simgrid::s4u;
namespace routing = simgrid::kernel::routing;

// A SimGrid zone that looks its routes up in the Fabric, so that SimGrid stores none. With Latency::flows every path
// has a latency of 1 s, because SimGrid weighs flows on a shared link by the inverse of their route's latency (TCP's
// unfairness), and a fluid fabric does not. Fabric::let_flows_pay multiplies this 1 s by the true latency.
class FabricZone : public routing::NetZoneImpl {
 public:
  FabricZone(const std::string& name, const Fabric& fabric) : NetZoneImpl(name), fabric_(fabric) {}
  void get_local_route(const routing::NetPoint* from, const routing::NetPoint* to, routing::Route* into,
                       double* latency_s) override {
    const Fabric::Path& path = fabric_.path(from->id(), to->id());
    into->link_list_ = path.links;
    if (latency_s != nullptr && path.pays_latency && fabric_.latency_ == Fabric::Latency::flows)
      *latency_s += 1.0;
  }

 private:
  const Fabric& fabric_;
};

namespace {

// The most actors that get a guard page. A guard page under every stack turns an overflow into a fault, but each one
// splits a memory mapping, and Linux allows a process 65,530 mappings (vm.max_map_count).
constexpr std::size_t kMostGuarded = 20'000;

}  // namespace

sg::Engine& make_engine(std::size_t actors) {
  MOTLEY_CHECK(!sg::Engine::has_instance());
  // Stacks without guard pages come from calloc(), which does not write zeros into memory fresh from the kernel. With
  // M_TOP_PAD 0 the heap grows by no more than each stack asks for, so all of it is fresh, and the pages of a stack
  // that its actor never reaches are never touched.
  if (actors > kMostGuarded) mallopt(M_TOP_PAD, 0);
  static const std::vector<std::string> arguments = {
    "motley",
    "--log=root.app:file:/dev/null",  // SimWorld itself reports a deadlock
    // Plain max-min sharing of bandwidth, no TCP corrections, no reverse traffic.
    "--cfg=network/model:CM02",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/crosstraffic:0",
    "--cfg=network/weight-S:0",
    // Times are doubles of a few hundred seconds at most: 1e-12 s is just above their rounding.
    "--cfg=surf/precision:1e-12",
    "--cfg=maxmin/precision:1e-9",
    // KiB. An actor's stack holds the interpreter and one call into the World.
    "--cfg=contexts/stack-size:64",
    fmt::format("--cfg=contexts/guard-size:{}", actors <= kMostGuarded ? 1 : 0),  // in pages
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    "--cfg=contexts/factory:thread",  // sanitizers follow threads, not swapped stacks
#endif
  };
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int argc = static_cast<int>(arguments.size());
  static auto* engine = new sg::Engine(&argc, argv.data());  // lives as long as the process
  return *engine;
}

Fabric::Fabric(const Program& program, const Cluster& cluster, const Folding& folding, Latency latency)
    : program_(program),
      cluster_(cluster),
      folding_(folding),
      latency_(latency),
      zone_(new FabricZone("fabric", *this)),  // owned by the Engine
      side_(static_cast<std::size_t>(
          std::ceil(std::sqrt(static_cast<double>(folding.symmetry.lanes.first.size()))))) {
  make_hosts();
  make_paths(crossings(folding));
  zone_->get_iface()->seal();
  if (latency == Latency::flows) let_flows_pay();
}

void Fabric::let_flows_pay() {
  zone_->get_iface()->get_network_model()->set_lat_factor_cb(
      [this](double bytes, const sg::Host* from, const sg::Host* to, const std::vector<sg::Link*>&,
             const std::unordered_set<sg::NetZone*>&) {
        return latency_s(path(from->get_netpoint()->id(), to->get_netpoint()->id()),
                         static_cast<std::int64_t>(bytes));
      });
}

// Makes two sets of hosts, so that each class of lanes has a pair of its own: a host costs more memory than a path.
void Fabric::make_hosts() {
  int count = 0;
  const auto make = [&] {
    sg::Host* host = zone_->get_iface()->create_host(fmt::format("{}", count++), 1.0);
    host->seal();
    return host;
  };
  for (auto* side : {&senders_, &receivers_})
    for (std::size_t i = 0; i < side_; ++i) side->push_back(make());
  hosts_.resize(program_.ranks.size());
  for (Rank rank : folding_.symmetry.ranks.first) hosts_[rank] = make();
}

sg::Link* Fabric::link_of(std::int32_t link_class, std::int64_t parts) {
  sg::Link*& link = links_[link_class];
  if (link != nullptr) return link;
  const auto first = folding_.symmetry.links.first[static_cast<std::size_t>(link_class)];
  const LinkProperties& properties = cluster_.link_table[static_cast<std::size_t>(first)];
  link = zone_->get_iface()->create_link(
      fmt::format("link{}", first),
      properties.bandwidth * properties.efficiency / static_cast<double>(parts));
  link->seal();
  return link;
}

// Adds the rate that one flow of the lane reaches alone, where that is less than its links give: a chip may be far from
// its NIC, and a ring moves at the rate of its slowest edge (its flow must not end early on a healthy NIC). Adds
// nothing where only the links limit the flow.
void Fabric::add_cap(Path& path, const Lane& lane) {
  double capacity = std::numeric_limits<double>::infinity();
  for (int id : path.route.links) {
    const LinkProperties& properties = cluster_.link_table[static_cast<std::size_t>(id)];
    capacity = std::min(capacity, properties.bandwidth * properties.efficiency);
  }
  double cap = path.route.rate < capacity ? path.route.rate : 0;
  if (lane.cap > 0) cap = cap > 0 ? std::min(cap, lane.cap) : lane.cap;
  if (cap <= 0) return;
  // Every lane gets a cap link of its own: SimGrid looks at all flows of a link whenever one of them changes.
  sg::Link* link = zone_->get_iface()->create_link(fmt::format("cap{}", paths_.size()), cap);
  link->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)->seal();
  path.links.push_back(link->get_impl());
}

void Fabric::make_paths(const Crossings& crossings) {
  const std::vector<std::int32_t>& lanes = folding_.symmetry.lanes.first;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Lane& lane = folding_.arrangement.lanes[static_cast<std::size_t>(lanes[i])];
    const int from = program_.ranks[lane.from].chip;
    const int to = program_.ranks[lane.to].chip;
    Path path;
    if (lane.host != 0) {
      path.route = host_route(cluster_, from, lane.host == 1);
    } else {
      path.route = route(cluster_, from, to, lane.carrier);
      path.transport = message_cost_of(cluster_, from, to, lane.carrier);
      if (lane.group) path.transport.message_kappa = 0;  // collectives have a kappa term of their own
      if (lane.latency_s >= 0) {
        path.route.latency_s = lane.latency_s;
        path.transport.software_latency_s = 0;
      }
    }
    path.pays_latency = lane.by_ranks;
    for (const Crossing& crossing : crossings.of_lane[i]) {
      const std::int64_t parts = crossings.parts[static_cast<std::size_t>(crossing.link_class)];
      // A link may be in a route several times: SimGrid adds up what the Comm takes of it.
      path.links.insert(path.links.end(), static_cast<std::size_t>(crossing.times / parts),
                        link_of(crossing.link_class, parts)->get_impl());
    }
    add_cap(path, lane);
    paths_.push_back(std::move(path));
  }
}

const Fabric::Path& Fabric::path(unsigned long from, unsigned long to) const {
  return paths_.at(from * side_ + (to - side_));
}

double Fabric::latency_s(const Path& path, std::int64_t bytes) {
  return path.pays_latency ? path.route.latency_s + message_overhead_s(path.transport, path.route, bytes) : 0;
}

double Fabric::latency_s(std::int32_t lane, std::int64_t bytes) const {
  return latency_s(paths_[static_cast<std::size_t>(folding_.lane_class(lane))], bytes);
}

std::pair<sg::Host*, sg::Host*> Fabric::ends_of(std::int32_t lane) const {
  const auto lane_class = static_cast<std::size_t>(folding_.lane_class(lane));
  return {senders_[lane_class / side_], receivers_[lane_class % side_]};
}

sg::CommPtr Fabric::start(std::int32_t lane, std::int64_t bytes) const {
  const auto [from, to] = ends_of(lane);
  return sg::Comm::sendto_async(from, to, static_cast<std::uint64_t>(bytes));
}

}  // namespace motley
