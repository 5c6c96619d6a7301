// One function for each thing for which a cluster's file gives a figure. Figures of one thing change together: a
// NIC's bandwidth and its measured rate.
#include "models/plan/levers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/cluster/cluster_layout.hpp"
#include "models/cluster/message_cost.hpp"

namespace motley {
namespace {

class ClusterLevers {
 public:
  ClusterLevers(const Job& job, const Program& program) : job_(job), cluster_(job.cluster) {
    for (const RankEntry& entry : program.ranks) used_.insert(at(cluster_.chip_group[at(entry.chip)]));
    for (const RankProgram& rank_program : program.rank_programs)
      for (const Stream& stream : rank_program.streams)
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

  using Improve = std::function<void(Cluster&, double factor)>;
  void add(Lever lever, double value, Improve improve) {
    if (value <= 0) return;
    lever.value = value;
    lever.improve = std::move(improve);
    levers_.push_back(std::move(lever));
  }
  static Lever in_seconds(Lever lever) {
    lever.dimension = Dimension::seconds;
    lever.is_rate = false;
    return lever;
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
    add(std::move(flops), peak == nodes.chip.peak_flops.end() ? 0 : peak->second.value,
        [group](Cluster& cluster, double factor) {
          for (auto& [format, figure] : cluster.groups[group].chip.peak_flops) figure.value *= factor;
        });
    add(named("chip memory bandwidth", where, memory_key(nodes)), nodes.chip.memory_bandwidth.value,
        [group](Cluster& cluster, double factor) {
          cluster.groups[group].chip.memory_bandwidth.value *= factor;
        });
    add(in_seconds(named("kernel overhead", where, overhead_key(nodes))),
        nodes.chip.software.kernel_overhead.value, [group](Cluster& cluster, double factor) {
          cluster.groups[group].chip.software.kernel_overhead.value /= factor;
          cluster.groups[group].chip.software.step_overhead.value /= factor;
        });
  }

  void add_inside(std::size_t group) {
    const NodeGroup& nodes = cluster_.groups[group];
    const std::string fabric(name_of(nodes.inside.kind)), where = "inside nodes of " + nodes.name;
    if (nodes.chips_per_node > 1 && !is_pcie_tree(nodes))
      add(named(fabric + " bandwidth", where, inside_key(nodes)), nodes.inside.bandwidth,
          [group](Cluster& cluster, double factor) {
            InsideFabric& inside = cluster.groups[group].inside;
            inside.bandwidth *= factor;
            inside.reaches *= factor;
            inside.in_switch *= factor;
          });
    if (nodes.pcie) add_pcie(group, where);
    if (nodes.chips_per_node > 1)
      add(in_seconds(named(fabric + " latency", where, "")), nodes.inside.latency_s,
          [group](Cluster& cluster, double factor) { cluster.groups[group].inside.latency_s /= factor; });
  }

  // Adds the rate that a chip's link reaches. Its nominal rate follows from generation and lanes, which come in
  // steps; so do the links of switches and NICs.
  void add_pcie(std::size_t group, const std::string& where) {
    const NodeGroup& nodes = cluster_.groups[group];
    const double reached =
        efficiency_of(*nodes.pcie) * pcie_bandwidth(nodes.pcie->generation, nodes.pcie->lanes);
    add(named("PCIe link of a chip", where, pcie_key(nodes)), reached,
        [group, reached](Cluster& cluster, double factor) {
          cluster.groups[group].pcie->reaches = reached * factor;
        });
    add(named("link between sockets", where, pcie_key(nodes)),
        nodes.pcie->sockets > 1 ? nodes.pcie->socket_link : 0,
        [group](Cluster& cluster, double factor) { cluster.groups[group].pcie->socket_link *= factor; });
  }

  void add_nic(std::size_t group, std::size_t index) {
    const NodeGroup& nodes = cluster_.groups[group];
    const Nic& nic = nodes.nics[index];
    const std::string kind(name_of(nic.kind)), where = "NICs of " + nodes.name;
    add(named(kind + " bandwidth", where, nic_key(nodes, nic.kind)), nic.bandwidth,
        [group, index](Cluster& cluster, double factor) {
          Nic& better = cluster.groups[group].nics[index];
          better.bandwidth *= factor;
          better.reaches *= factor;
        });
    add(in_seconds(named(kind + " latency", where, "")), nic.latency_s,
        [group, index](Cluster& cluster, double factor) {
          cluster.groups[group].nics[index].latency_s /= factor;
        });
  }

  void add_host(std::size_t group) {
    const NodeGroup& nodes = cluster_.groups[group];
    const std::string where = "nodes of " + nodes.name;
    add(named("host link of a chip", where, host_link_key(nodes)), nodes.host->link,
        [group](Cluster& cluster, double factor) { cluster.groups[group].host->link *= factor; });
    add(named("host memory bandwidth", where, host_memory_key(nodes)), nodes.host->memory_bandwidth,
        [group](Cluster& cluster, double factor) { cluster.groups[group].host->memory_bandwidth *= factor; });
  }

  void add_link(std::size_t index) {
    const GroupLink& link = cluster_.links[index];
    add(named("link bandwidth", name_of(link), link_key(index)), link.bandwidth,
        [index](Cluster& cluster, double factor) { cluster.links[index].bandwidth *= factor; });
    add(named("bandwidth of one flow", name_of(link), flow_key(index)), link.per_flow,
        [index](Cluster& cluster, double factor) { cluster.links[index].per_flow *= factor; });
    add(in_seconds(named("link latency", name_of(link), "")), link.latency_s,
        [index](Cluster& cluster, double factor) { cluster.links[index].latency_s /= factor; });
  }

  void add_network(std::size_t index) {
    const Network& network = cluster_.networks[index];
    const bool is_here =
        network.groups.empty() || std::any_of(network.groups.begin(), network.groups.end(),
                                              [this](const std::string& name) { return is_used(name); });
    if (network.shape == NetworkShape::single || !is_here) return;
    const std::string over(name_of(network.over)), shape(name_of(network.shape));
    const std::string where =
        network.groups.empty() ? shape : fmt::format("{} of {}", shape, fmt::join(network.groups, ", "));
    add_switch_links(index, over, where);
    add(in_seconds(named(over + " switch latency", where, "")), network.latency_s,
        [index](Cluster& cluster, double factor) { cluster.networks[index].latency_s /= factor; });
  }

  // Adds the rate of the links if it is given, else their oversubscription.
  void add_switch_links(std::size_t index, const std::string& over, const std::string& where) {
    const Network& network = cluster_.networks[index];
    const bool dragonfly = network.shape == NetworkShape::dragonfly;
    if (dragonfly || network.uplink > 0)
      return add(named(over + " switch links", where, network_key(index)),
                 dragonfly ? network.global : network.uplink, [index](Cluster& cluster, double factor) {
                   Network& better = cluster.networks[index];
                   better.uplink *= factor;
                   better.local *= factor;
                   better.global *= factor;
                 });
    Lever lever = named(over + " oversubscription", where, network_key(index));
    lever.is_rate = false;
    lever.dimension = std::nullopt;
    add(std::move(lever), network.oversubscription,
        [index](Cluster& cluster, double factor) { cluster.networks[index].oversubscription /= factor; });
  }

  const Job& job_;
  const Cluster& cluster_;
  std::set<std::size_t> used_;  // groups on which ranks stand
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

std::vector<Lever> levers(const Job& job, const Program& program) {
  return ClusterLevers(job, program).list();
}

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
