#include "models/page/sources.hpp"

#include <fmt/format.h>

#include <set>

#include "models/base/units.hpp"
#include "models/cluster/chip_figures.hpp"
#include "models/cluster/message_cost.hpp"

namespace motley {
namespace {

std::string words_of(double value, Dimension dimension) { return format_exact(value, dimension); }

// The groups of the cluster on whose chips ranks stand.
std::set<int> groups_in_use(const Cluster& cluster, const Program& program) {
  std::set<int> groups;
  for (const Rank rank : program.ranks.ids())
    groups.insert(cluster.chip_group[static_cast<std::size_t>(program.ranks[rank].chip)]);
  return groups;
}

std::string describe(const Network& network) {
  switch (network.shape) {
    case NetworkShape::single:
      return "one switch that never blocks";
    case NetworkShape::dragonfly:
      return fmt::format("{} routers a group, links of {} in a group and {} between groups",
                         network.routers_per_group, format_line_rate(network.local),
                         format_line_rate(network.global));
    default:
      return fmt::format("{} nodes a leaf, {} spines, oversubscription {:.3g}, {}", network.nodes_per_leaf,
                         network.spines, network.oversubscription, name_of(network.routing));
  }
}

// What a message reaches of its wire, and takes beyond it.
void add_messages(const NodeGroup& group, std::vector<UsedFigure>& figures) {
  const auto add = [&](std::string_view wire, double efficiency, const MessageCost& cost) {
    figures.push_back({fmt::format("messages of node group {}", group.name), std::string(wire),
                       fmt::format("{:.3g} of the bandwidth, {} a message beyond the wire", efficiency,
                                   words_of(cost.software_latency_s, Dimension::seconds)),
                       "measurements that models/cluster/message_cost.cpp names"});
  };
  add(name_of(group.inside.kind), efficiency_of(group.inside), inside_message_cost(group.inside.kind));
  for (const Nic& nic : group.nics) add(name_of(nic.kind), efficiency_of(nic), native_message_cost(nic));
}

void add_group(const NodeGroup& group, const std::string& source, std::vector<UsedFigure>& figures) {
  const std::string part = fmt::format("node group {}", group.name);
  const auto add = [&](const std::string& figure, const std::string& value) {
    figures.push_back({part, figure, value, source});
  };
  add("nodes", fmt::format("{} of {} {}", group.nodes, group.chips_per_node, group.chip.name));
  add(fmt::format("{} inside a node", name_of(group.inside.kind)),
      fmt::format("{} for each chip, {}", words_of(group.inside.bandwidth, Dimension::bytes_per_second),
                  words_of(group.inside.latency_s, Dimension::seconds)));
  if (group.pcie)
    add("PCIe", fmt::format("generation {}, {} lanes for each chip, {} for each NIC", group.pcie->generation,
                            group.pcie->lanes, group.pcie->nic_lanes));
  for (const Nic& nic : group.nics)
    add(fmt::format("{} NICs", name_of(nic.kind)),
        fmt::format("{} a node, {} each, {}", nic.count, format_line_rate(nic.bandwidth),
                    words_of(nic.latency_s, Dimension::seconds)));
  if (group.host && !group.host->measured.empty())
    figures.push_back({part, "host memory",
                       words_of(group.host->memory_bandwidth, Dimension::bytes_per_second),
                       group.host->measured});
}

}  // namespace

std::vector<UsedFigure> used_figures(const Scenario& scenario, const Program& program, const Report& report) {
  const Cluster& cluster = scenario.job.cluster;
  std::vector<UsedFigure> figures;
  std::set<std::string> chips;
  const std::set<int> groups = groups_in_use(cluster, program);
  for (const int group : groups) {
    const Chip& chip = cluster.groups[static_cast<std::size_t>(group)].chip;
    if (!chips.insert(chip.name).second) continue;
    for (const ChipFigure& figure : list_figures(chip))
      figures.push_back({chip.name, figure.key, figure.value, figure.source});
  }
  std::string source = fmt::format("given by the cluster {}", cluster.name);
  if (!cluster.links_measured_on.empty())
    source += fmt::format(", measured on {}", cluster.links_measured_on);
  if (!scenario.settings.empty()) source += ", but for what --set changes";
  for (const int group : groups) {
    const NodeGroup& nodes = cluster.groups[static_cast<std::size_t>(group)];
    add_group(nodes, source, figures);
    add_messages(nodes, figures);
  }
  for (const Network& network : cluster.networks)
    figures.push_back({fmt::format("network over {}", name_of(network.over)),
                       std::string(name_of(network.shape)), describe(network), source});
  for (const GroupLink& link : cluster.links)
    if (link.is_site_link())
      figures.push_back({fmt::format("link {} - {}", link.from, link.to), "bandwidth, latency",
                         fmt::format("{}, {}", format_line_rate(link.bandwidth),
                                     words_of(link.latency_s, Dimension::seconds)),
                         source});
  if (cluster.variation && !cluster.variation->source.empty())
    figures.push_back(
        {"variation", "speeds of parts that are called alike", "they vary", cluster.variation->source});
  if (report.interval)
    figures.push_back({"prediction", "likely interval",
                       fmt::format("{:.3g} to {:.3g} times the step, {:.0f} %", report.interval->low,
                                   report.interval->high, 100 * kIntervalShare),
                       report.interval->source});
  figures.push_back({"prediction", "model FLOPs", "by a formula", report.flop_formula});
  if (!scenario.job.transformer.source.empty())
    figures.push_back(
        {"prediction", "shape of the model", scenario.job.transformer.name, scenario.job.transformer.source});
  if (report.spending.step.kwh)
    figures.push_back({"prediction", "power of a chip that computes, communicates, waits",
                       fmt::format("{:.3g}, {:.3g}, {:.3g} of its design power", kComputingPower,
                                   kCommunicatingPower, kWaitingPower),
                       "measurements of others that models/report/spending.hpp names, and an assumption"});
  figures.push_back({"prediction", "memory beyond tensors", "by stage, above",
                     "assumed from what NCCL and PyTorch allocate, as models/check/memory_extra.hpp says"});
  return figures;
}

}  // namespace motley
