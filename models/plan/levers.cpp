// One function for each thing that a cluster's file gives a figure for; the figures of one thing that go together (a
// NIC's bandwidth and what of it was measured) change together.
#include "models/levers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "models/cluster_layout.hpp"
#include "models/refusal.hpp"
#include "models/transport.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

class Lister {
 public:
  Lister(const Job& job, const Program& program) : job_(job), cluster_(job.cluster) {
    for (const RankEntry& entry : program.ranks) used_.insert(at(cluster_.chip_group[at(entry.chip)]));
    for (const ProgramClass& of_class : program.classes)
      for (const Stream& stream : of_class.streams)
        offloads_ = offloads_ || stream.kind >= StreamKind::to_host;
  }

  std::vector<Lever> list() {
    for (const std::size_t group : used_) {
      add_chip(group);
      add_inside(group);
      for (std::size_t nic = 0; nic < cluster_.groups[group].nics.size(); ++nic) add_nic(group, nic);
      if (offloads_ && cluster_.groups[group].host) add_host(group);
    }
    for (std::size_t link = 0; link < cluster_.links.size(); ++link)
      if (cluster_.links[link].is_site_link() && is_used(cluster_.links[link].from) &&
          is_used(cluster_.links[link].to))
        add_link(link);
    for (std::size_t network = 0; network < cluster_.networks.size(); ++network) add_network(network);
    return std::move(levers_);
  }

 private:
  bool is_used(const std::string& group) const {
    return std::any_of(used_.begin(), used_.end(),
                       [&](std::size_t each) { return cluster_.groups[each].name == group; });
  }

  template <class Of>
  void add_rate(Lever lever, double value, Of of) {
    if (value <= 0) return;
    lever.value = value;
    lever.improve = [of](Cluster& cluster, double factor) { of(cluster, factor); };
    levers_.push_back(std::move(lever));
  }
  template <class Of>
  void add_seconds(Lever lever, double value, Of of) {
    lever.dimension = Dimension::seconds;
    lever.is_rate = false;
    add_rate(std::move(lever), value, [of](Cluster& cluster, double factor) { of(cluster) /= factor; });
  }
  static Lever named(std::string what, std::string where, const std::string& key) {
    Lever lever;
    const auto starts_with = [&](const std::string& with) { return key.rfind(with, 0) == 0; };
    lever.in_bits =
        starts_with("nic/") || starts_with("link/") || starts_with("flow/") || starts_with("network/");
    lever.what = std::move(what);
    lever.where = std::move(where);
    if (!key.empty()) lever.keys = {key};
    return lever;
  }

  void add_chip(std::size_t group) {
    const NodeGroup& nodes = cluster_.groups[group];
    const std::string where = fmt::format("{} ({})", nodes.name, nodes.chip.name);
    const auto peak = nodes.chip.peak_flops.find(job_.train.precision);
    Lever flops = named("chip FLOP/s", where, flops_key(nodes));
    flops.dimension = Dimension::flops;
    add_rate(std::move(flops), peak == nodes.chip.peak_flops.end() ? 0 : peak->second.value,
             [group](Cluster& cluster, double factor) {
               for (auto& [format, figure] : cluster.groups[group].chip.peak_flops) figure.value *= factor;
             });
    add_rate(named("chip memory bandwidth", where, memory_key(nodes)), nodes.chip.memory_bandwidth.value,
             [group](Cluster& cluster, double factor) {
               cluster.groups[group].chip.memory_bandwidth.value *= factor;
             });
    Lever overhead = named("kernel overhead", where, overhead_key(nodes));
    overhead.dimension = Dimension::seconds;
    overhead.is_rate = false;
    add_rate(std::move(overhead), nodes.chip.kernel_overhead.value, [group](Cluster& cluster, double factor) {
      cluster.groups[group].chip.kernel_overhead.value /= factor;
      cluster.groups[group].chip.step_overhead.value /= factor;
    });
  }

  void add_inside(std::size_t group) {
    const NodeGroup& nodes = cluster_.groups[group];
    const std::string fabric(name_of(nodes.inside.kind)), where = "inside nodes of " + nodes.name;
    if (nodes.chips_per_node > 1 && !is_pcie_tree(nodes))
      add_rate(named(fabric + " bandwidth", where, inside_key(nodes)), nodes.inside.bandwidth,
               [group](Cluster& cluster, double factor) {
                 InsideFabric& inside = cluster.groups[group].inside;
                 inside.bandwidth *= factor;
                 inside.reaches *= factor;
                 inside.in_switch *= factor;
               });
    if (nodes.pcie) add_pcie(group, where);
    if (nodes.chips_per_node > 1)
      add_seconds(named(fabric + " latency", where, ""), nodes.inside.latency_s,
                  [group](Cluster& cluster) -> double& { return cluster.groups[group].inside.latency_s; });
  }

  // What is reached of a chip's link: the rate itself follows from generation and lanes, which come in steps, as do
  // those of switches and NICs.
  void add_pcie(std::size_t group, const std::string& where) {
    const NodeGroup& nodes = cluster_.groups[group];
    const double reached =
        efficiency_of(*nodes.pcie) * pcie_bandwidth(nodes.pcie->generation, nodes.pcie->lanes);
    add_rate(named("PCIe link of a chip", where, pcie_key(nodes)), reached,
             [group, reached](Cluster& cluster, double factor) {
               cluster.groups[group].pcie->reaches = reached * factor;
             });
    add_rate(named("link between sockets", where, pcie_key(nodes)),
             nodes.pcie->sockets > 1 ? nodes.pcie->socket_link : 0,
             [group](Cluster& cluster, double factor) { cluster.groups[group].pcie->socket_link *= factor; });
  }

  void add_nic(std::size_t group, std::size_t nic) {
    const NodeGroup& nodes = cluster_.groups[group];
    const Nic& of = nodes.nics[nic];
    const std::string kind(name_of(of.kind)), where = "NICs of " + nodes.name;
    add_rate(named(kind + " bandwidth", where, nic_key(nodes, of.kind)), of.bandwidth,
             [group, nic](Cluster& cluster, double factor) {
               Nic& better = cluster.groups[group].nics[nic];
               const double share = efficiency_of(better);
               better.bandwidth *= factor;
               better.reaches *= factor;
               // Sockets reach less of faster lines: by a step, which is no matter of a few per cent.
               if (better.reaches <= 0 && efficiency_of(better) != share)
                 better.reaches = share * better.bandwidth;
             });
    add_seconds(named(kind + " latency", where, ""), of.latency_s, [group, nic](Cluster& cluster) -> double& {
      return cluster.groups[group].nics[nic].latency_s;
    });
  }

  void add_host(std::size_t group) {
    const NodeGroup& nodes = cluster_.groups[group];
    const std::string where = "nodes of " + nodes.name;
    add_rate(named("host link of a chip", where, host_link_key(nodes)), nodes.host->link,
             [group](Cluster& cluster, double factor) { cluster.groups[group].host->link *= factor; });
    add_rate(
        named("host memory bandwidth", where, host_memory_key(nodes)), nodes.host->memory_bandwidth,
        [group](Cluster& cluster, double factor) { cluster.groups[group].host->memory_bandwidth *= factor; });
  }

  void add_link(std::size_t link) {
    const GroupLink& of = cluster_.links[link];
    add_rate(named("link bandwidth", name_of(of), link_key(link)), of.bandwidth,
             [link](Cluster& cluster, double factor) { cluster.links[link].bandwidth *= factor; });
    add_rate(named("bandwidth of one flow", name_of(of), flow_key(link)), of.per_flow,
             [link](Cluster& cluster, double factor) { cluster.links[link].per_flow *= factor; });
    add_seconds(named("link latency", name_of(of), ""), of.latency_s,
                [link](Cluster& cluster) -> double& { return cluster.links[link].latency_s; });
  }

  void add_network(std::size_t network) {
    const Network& of = cluster_.networks[network];
    const bool here = of.groups.empty() || std::any_of(of.groups.begin(), of.groups.end(),
                                                       [this](const auto& name) { return is_used(name); });
    if (of.shape == NetworkShape::single || !here) return;
    const std::string what = fmt::format("{} switch links", name_of(of.over));
    const std::string where = of.groups.empty()
                                  ? std::string(name_of(of.shape))
                                  : fmt::format("{} of {}", name_of(of.shape), fmt::join(of.groups, ", "));
    const bool dragonfly = of.shape == NetworkShape::dragonfly;
    if (!dragonfly && of.uplink <= 0) {
      Lever lever = named(fmt::format("{} oversubscription", name_of(of.over)), where, network_key(network));
      lever.is_rate = false;
      lever.dimension = {};
      add_rate(std::move(lever), of.oversubscription, [network](Cluster& cluster, double factor) {
        cluster.networks[network].oversubscription /= factor;
      });
    } else {
      add_rate(named(what, where, network_key(network)), dragonfly ? of.global : of.uplink,
               [network](Cluster& cluster, double factor) {
                 Network& better = cluster.networks[network];
                 better.uplink *= factor;
                 better.local *= factor;
                 better.global *= factor;
               });
    }
    add_seconds(named(fmt::format("{} switch latency", name_of(of.over)), where, ""), of.latency_s,
                [network](Cluster& cluster) -> double& { return cluster.networks[network].latency_s; });
  }

  const Job& job_;
  const Cluster& cluster_;
  std::set<std::size_t> used_;
  bool offloads_ = false;
  std::vector<Lever> levers_;
};

Lever several(const std::vector<Lever>& levers) {
  Lever lever;
  lever.what = levers.front().what;
  lever.dimension = levers.front().dimension;
  lever.is_rate = levers.front().is_rate;
  lever.in_bits = levers.front().in_bits;
  const bool alike = std::all_of(levers.begin(), levers.end(),
                                 [&](const Lever& each) { return each.value == levers.front().value; });
  lever.value = alike ? levers.front().value : 0;
  for (const Lever& each : levers) lever.keys.insert(lever.keys.end(), each.keys.begin(), each.keys.end());
  lever.improve = [levers](Cluster& cluster, double factor) {
    for (const Lever& each : levers) each.improve(cluster, factor);
  };
  return lever;
}

}  // namespace

std::vector<Lever> levers(const Job& job, const Program& program) { return Lister(job, program).list(); }

std::vector<Lever> combined(const std::vector<Lever>& levers) {
  std::vector<Lever> sets;
  std::set<std::string> done;
  for (const Lever& first : levers) {
    if (!done.insert(first.what).second) continue;
    std::vector<Lever> alike;
    std::copy_if(levers.begin(), levers.end(), std::back_inserter(alike),
                 [&](const Lever& each) { return each.what == first.what; });
    if (alike.size() < 2) continue;
    sets.push_back(several(alike));
    sets.back().where = alike.size() == 2 ? "both together" : fmt::format("all {} together", alike.size());
  }
  return sets;
}

Lever all_together(const std::vector<Lever>& levers) {
  MOTLEY_CHECK(!levers.empty());
  Lever all = several(levers);
  all.what = "all of these";
  all.where = "together";
  all.value = 0;
  all.keys.clear();
  return all;
}

std::string flops_key(const NodeGroup& group) { return "flops/" + group.name; }
std::string memory_key(const NodeGroup& group) { return "memory/" + group.name; }
std::string overhead_key(const NodeGroup& group) { return "overhead/" + group.name; }
std::string inside_key(const NodeGroup& group) { return "inside/" + group.name; }
std::string pcie_key(const NodeGroup& group) { return "pcie/" + group.name; }
std::string host_link_key(const NodeGroup& group) { return "host link/" + group.name; }
std::string host_memory_key(const NodeGroup& group) { return "host memory/" + group.name; }
std::string nic_key(const NodeGroup& group, NicKind kind) {
  return fmt::format("nic/{}/{}", group.name, name_of(kind));
}
std::string link_key(std::size_t link) { return fmt::format("link/{}", link); }
std::string flow_key(std::size_t link) { return fmt::format("flow/{}", link); }
std::string network_key(std::size_t network) { return fmt::format("network/{}", network); }

std::string name_of(const GroupLink& link) { return fmt::format("{} - {}", link.from, link.to); }

Job improved(const Job& job, const Lever& lever, double factor) {
  Job better = job;
  lever.improve(better.cluster, factor);
  build_topology(better.cluster);
  return better;
}

}  // namespace motley
