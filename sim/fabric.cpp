#include "sim/fabric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <simgrid/kernel/resource/NetworkModelIntf.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <utility>

#include "models/refusal.hpp"

namespace motley {

namespace sg = simgrid::s4u;
namespace routing = simgrid::kernel::routing;

// A SimGrid zone whose routes are looked up, not stored by SimGrid. Every path that pays latency says 1 s: SimGrid
// weighs flows on a shared link by the inverse of their route's latency (TCP's unfairness), a fluid fabric does not.
// The true latency multiplies it (Fabric::latency_s).
class FabricZone : public routing::NetZoneImpl {
 public:
  FabricZone(const std::string& name, const Fabric& fabric) : NetZoneImpl(name), fabric_(fabric) {}
  void get_local_route(const routing::NetPoint* from, const routing::NetPoint* to, routing::Route* into,
                       double* latency_s) override {
    const Fabric::Path& path = fabric_.path(from->id(), to->id());
    into->link_list_ = path.links;
    if (latency_s != nullptr && path.pays_latency) *latency_s += 1.0;
  }

 private:
  const Fabric& fabric_;
};

namespace {

std::uint64_t key_of(unsigned long from, unsigned long to) { return (std::uint64_t{from} << 32) | to; }

// A guard page under every stack turns an overflow into a fault; each splits a mapping, and Linux allows a process
// 65,530 of them (vm.max_map_count).
constexpr std::size_t kMostGuarded = 20'000;

}  // namespace

sg::Engine& make_engine(std::size_t actors) {
  MOTLEY_CHECK(!sg::Engine::has_instance());
  static const std::vector<std::string> arguments = {
    "motley",
    "--log=root.app:file:/dev/null",  // a deadlock is reported by us, in our words
    // Plain max-min sharing of bandwidth, no TCP corrections, no reverse traffic.
    "--cfg=network/model:CM02",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/crosstraffic:0",
    "--cfg=network/weight-S:0",
    // Times are doubles of some hundred seconds at most: 1e-12 s is just above their rounding.
    "--cfg=surf/precision:1e-12",
    "--cfg=maxmin/precision:1e-9",
    // KiB: an actor runs the interpreter and one World call deep.
    "--cfg=contexts/stack-size:64",
    fmt::format("--cfg=contexts/guard-size:{}", actors <= kMostGuarded ? 1 : 0),  // pages
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

Fabric::Fabric(const Program& program, const Cluster& cluster, Shares shares)
    : program_(program),
      cluster_(cluster),
      shares_(std::move(shares)),
      zone_(new FabricZone("fabric", *this)) {  // owned by the Engine
  hosts_.resize(program.ranks.size());
}

sg::Host* Fabric::make_host() {
  sg::Host* host = zone_->get_iface()->create_host(fmt::format("{}", hosts_made_++), 1.0);
  host->seal();
  return host;
}

sg::Link* Fabric::link_of(int id) {
  const auto share = shares_.find(id);
  const int stands = share == shares_.end() ? id : share->second.link;
  const double part = share == shares_.end() ? 1.0 : share->second.part;
  sg::Link*& link = links_[stands];
  if (link != nullptr) return link;
  const LinkProperties& of = cluster_.link_table[static_cast<std::size_t>(id)];
  link = zone_->get_iface()->create_link(fmt::format("link{}", stands), of.bandwidth * of.efficiency * part);
  link->seal();
  return link;
}

// Holds each flow over it, alone, to `rate`.
sg::Link* Fabric::cap_of(double rate) {
  sg::Link*& link = caps_[rate];
  if (link != nullptr) return link;
  link = zone_->get_iface()->create_link(fmt::format("cap{}", caps_.size()), rate);
  link->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)->seal();
  return link;
}

Fabric::Path Fabric::make_path(Rank from, Rank to) {
  const int from_chip = program_.ranks[static_cast<std::size_t>(from)].chip;
  const int to_chip = program_.ranks[static_cast<std::size_t>(to)].chip;
  Path path;
  path.route = route(cluster_, from_chip, to_chip);
  path.transport = transport_of(cluster_, from_chip, to_chip);
  double capacity = std::numeric_limits<double>::infinity();
  for (int id : path.route.links) {
    const LinkProperties& of = cluster_.link_table[static_cast<std::size_t>(id)];
    capacity = std::min(capacity, of.bandwidth * of.efficiency);
    auto* link = link_of(id)->get_impl();
    if (std::find(path.links.begin(), path.links.end(), link) == path.links.end()) path.links.push_back(link);
  }
  if (path.route.rate < capacity) path.links.push_back(cap_of(path.route.rate)->get_impl());
  return path;
}

void Fabric::add_route(Rank from, Rank to) {
  for (Rank rank : {from, to})
    if (hosts_[static_cast<std::size_t>(rank)] == nullptr)
      hosts_[static_cast<std::size_t>(rank)] = make_host();
  const std::uint64_t key = key_of(host_of(from)->get_netpoint()->id(), host_of(to)->get_netpoint()->id());
  if (!paths_.contains(key)) paths_.emplace(key, make_path(from, to));
}

// Of each edge when all are busy: edges of one ring may share a link.
std::vector<double> Fabric::effective_rates(const std::vector<Path>& edges) {
  std::unordered_map<int, int> edges_on;
  for (const Path& edge : edges)
    for (int link : edge.route.links) ++edges_on[link];
  std::vector<double> rates;
  for (const Path& edge : edges) {
    int sharing = 1;
    for (int link : edge.route.links) sharing = std::max(sharing, edges_on[link]);
    rates.push_back(edge.route.bandwidth * edge.transport.efficiency / sharing);
  }
  return rates;
}

void Fabric::add_ring(int group, const std::vector<Rank>& ranks, double gang_rate) {
  auto& members = rings_[group];
  if (!members.empty()) return;
  for (std::size_t i = 0; i < ranks.size(); ++i) members.push_back(make_host());
  std::vector<Path> edges;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    edges.push_back(make_path(ranks[i], ranks[(i + 1) % ranks.size()]));
    edges.back().pays_latency = false;
  }
  const std::vector<double> rates = effective_rates(edges);
  const bool alike = std::all_of(rates.begin(), rates.end(), [&](double rate) { return rate == rates[0]; });
  sg::Link* cap = nullptr;
  if (!alike) {
    cap = zone_->get_iface()->create_link(fmt::format("gang{}", group), gang_rate);
    cap->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)->seal();
  }
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (cap != nullptr) edges[i].links.push_back(cap->get_impl());
    const sg::Host* to = members[(i + 1) % members.size()];
    paths_.emplace(key_of(members[i]->get_netpoint()->id(), to->get_netpoint()->id()), std::move(edges[i]));
  }
}

void Fabric::seal() {
  for (sg::Host*& host : hosts_)
    if (host == nullptr) host = make_host();
  zone_->get_iface()->seal();
  zone_->get_iface()->get_network_model()->set_lat_factor_cb(
      [this](double bytes, const sg::Host* from, const sg::Host* to, const std::vector<sg::Link*>&,
             const std::unordered_set<sg::NetZone*>&) { return latency_s(bytes, *from, *to); });
}

const Fabric::Path& Fabric::path(unsigned long from, unsigned long to) const {
  return paths_.at(key_of(from, to));
}

double Fabric::latency_s(double bytes, const sg::Host& from, const sg::Host& to) const {
  const Path& of = path(from.get_netpoint()->id(), to.get_netpoint()->id());
  if (!of.pays_latency) return 0;
  return of.route.latency_s + message_overhead_s(of.transport, of.route, static_cast<std::int64_t>(bytes));
}

sg::CommPtr Fabric::message(Rank from, Rank to, std::int64_t bytes) const {
  return sg::Comm::sendto_async(host_of(from), host_of(to), static_cast<std::uint64_t>(bytes));
}

sg::CommPtr Fabric::ring_flow(int group, int edge, std::int64_t bytes) const {
  const auto& members = rings_.at(group);
  const auto i = static_cast<std::size_t>(edge);
  return sg::Comm::sendto_async(members[i], members[(i + 1) % members.size()],
                                static_cast<std::uint64_t>(bytes));
}

}  // namespace motley
