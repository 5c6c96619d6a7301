#include "sim/fabric/simgrid_fabric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <simgrid/kernel/resource/NetworkModelIntf.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <string>
#include <unordered_set>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

// SimGrid 3.32 notes each Comm between two hosts in one list, and scans all of it whenever one of them ends: the time
// is square to their number. This definition takes the place of the library's, as a program's malloc() would, and notes
// nothing: SimGridFabric itself keeps a Comm until it has ended. Where a linker prefers the library's own definition,
// the answers are the same.
namespace simgrid::kernel::activity {
class CommImpl {
 public:
  CommImpl& detach();
};
CommImpl& CommImpl::detach() { return *this; }
}  // namespace simgrid::kernel::activity

namespace motley {

namespace sg = simgrid::s4u;
namespace routing = simgrid::kernel::routing;

// A SimGrid zone that looks its routes up in the Fabric, so that SimGrid stores none. With Latency::flows every path
// has a latency of 1 s, because SimGrid weighs flows on a shared link by the inverse of their route's latency (TCP's
// unfairness), and a fluid fabric does not. SimGridFabric::let_flows_pay multiplies this 1 s by the true latency.
class FabricZone : public routing::NetZoneImpl {
 public:
  FabricZone(const std::string& name, const SimGridFabric& fabric) : NetZoneImpl(name), fabric_(fabric) {}
  void get_local_route(const routing::NetPoint* from, const routing::NetPoint* to, routing::Route* into,
                       double* latency_s) override {
    const std::size_t lane_class = fabric_.lane_class(from->id(), to->id());
    const Fabric::Path& path = fabric_.fabric_.paths()[lane_class];
    // SimGrid adds up what a flow takes of a link that is in its route several times.
    for (const Fabric::Use& use : path.uses)
      into->link_list_.insert(into->link_list_.end(), at(use.times),
                              fabric_.links_[at(use.link)]->get_impl());
    if (fabric_.caps_[lane_class] != nullptr)
      into->link_list_.push_back(fabric_.caps_[lane_class]->get_impl());
    if (latency_s != nullptr && path.pays_latency && fabric_.latency_ == SimGridFabric::Latency::flows)
      *latency_s += 1.0;
  }

 private:
  const SimGridFabric& fabric_;
};

namespace {

// SimGrid counts whole bytes, up to 2^64. A flow that becomes contended midway has a part of a byte left, so parts are
// counted: the smallest that leave room for the largest flow.
double parts_of_byte(double largest_bytes) {
  double parts = 0x1p20;
  while (parts * largest_bytes > 0x1p63) parts /= 2;
  return parts;
}

sg::Engine& make_engine() {
  MOTLEY_CHECK(!sg::Engine::has_instance());
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
  };
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int argc = static_cast<int>(arguments.size());
  static auto* engine = new sg::Engine(&argc, argv.data());  // lives as long as the process
  return *engine;
}

}  // namespace

SimGridFabric::SimGridFabric(const Fabric& fabric, Latency latency)
    : fabric_(fabric),
      latency_(latency),
      parts_(latency == Latency::callers ? parts_of_byte(fabric.largest_flow()) : 1),
      engine_(make_engine()),
      zone_(new FabricZone("fabric", *this)),
      side_(static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(fabric.paths().size()))))) {
  make_hosts();
  make_links();
  zone_->get_iface()->seal();
  if (latency == Latency::flows) let_flows_pay();
  sg::Activity::on_completion_cb([this](const sg::Activity& activity) { ended(activity); });
}

void SimGridFabric::let_flows_pay() {
  zone_->get_iface()->get_network_model()->set_lat_factor_cb(
      [this](double bytes, const sg::Host* from, const sg::Host* to, const std::vector<sg::Link*>&,
             const std::unordered_set<sg::NetZone*>&) {
        const std::size_t which = lane_class(from->get_netpoint()->id(), to->get_netpoint()->id());
        return Fabric::latency_s(fabric_.paths()[which], std::llround(bytes));
      });
}

// Makes two sets of hosts, so that each class of lanes has a pair of its own: a host costs more memory than a path.
void SimGridFabric::make_hosts() {
  const auto make = [&](const char* what, std::size_t number) {
    sg::Host* host = zone_->get_iface()->create_host(fmt::format("{}{}", what, number), 1.0);
    host->seal();
    return host;
  };
  for (std::size_t i = 0; i < side_; ++i) senders_.push_back(make("sender", i));
  for (std::size_t i = 0; i < side_; ++i) receivers_.push_back(make("receiver", i));
  if (latency_ == Latency::callers) return;
  hosts_.resize(fabric_.rank_count());
  for (const Rank rank : hosts_.ids()) hosts_[rank] = make("rank", at(rank));
}

void SimGridFabric::make_links() {
  for (const double capacity : fabric_.capacities()) {
    links_.push_back(
        zone_->get_iface()->create_link(fmt::format("link{}", links_.size()), parts_ * capacity));
    links_.back()->seal();
  }
  for (const Fabric::Path& path : fabric_.paths()) {
    caps_.push_back(nullptr);
    if (std::isinf(path.cap)) continue;
    // Every lane gets a cap link of its own: SimGrid looks at all flows of a link whenever one of them changes.
    caps_.back() = zone_->get_iface()->create_link(fmt::format("cap{}", caps_.size()), parts_ * path.cap);
    caps_.back()->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)->seal();
  }
}

std::size_t SimGridFabric::lane_class(unsigned long from, unsigned long to) const {
  return from * side_ + (to - side_);
}

std::pair<sg::Host*, sg::Host*> SimGridFabric::ends_of(std::size_t lane_class) const {
  return {senders_[lane_class / side_], receivers_[lane_class % side_]};
}

void SimGridFabric::start(std::size_t lane_class, double bytes, void* flow) {
  const auto [from, to] = ends_of(lane_class);
  const double parts = std::max(1.0, std::round(bytes * parts_));
  const sg::CommPtr comm = sg::Comm::sendto_init();
  comm->set_data(flow);
  comm->set_payload_size(static_cast<std::uint64_t>(parts))->set_source(from)->set_destination(to);
  comm->add_ref();  // until it has ended
  ++under_way_;
}

void SimGridFabric::ended(const sg::Activity& activity) {
  if (latency_ == Latency::flows) return;
  auto& comm = const_cast<sg::Comm&>(dynamic_cast<const sg::Comm&>(activity));
  ended_.emplace_back(&comm, false);  // takes over the reference of start()
  stop_.insert(&comm);
}

void SimGridFabric::move_to(double now_s) {
  while (sg::Engine::get_clock() < now_s) engine_.run_until(now_s);
}

double SimGridFabric::advance(double until_s, std::vector<void*>& ended) {
  sg::Activity::set_vetoed_activities(&stop_);
  while (ended_.empty() && sg::Engine::get_clock() < until_s)
    engine_.run_until(std::isinf(until_s) ? -1 : until_s);
  sg::Activity::set_vetoed_activities(nullptr);
  stop_.clear();
  for (const sg::CommPtr& comm : ended_) ended.push_back(comm->get_data<void>());
  under_way_ -= ended_.size();
  ended_.clear();
  return std::min(until_s, sg::Engine::get_clock());
}

}  // namespace motley
