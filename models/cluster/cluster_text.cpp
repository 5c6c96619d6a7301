// A cluster as YAML: the files of platforms/, and what print() writes.
#include <fmt/format.h>

#include "models/base/data_files.hpp"
#include "models/base/refusal.hpp"
#include "models/cluster/cluster.hpp"
#include "models/cluster/network_text.hpp"
#include "models/cluster/node_text.hpp"
#include "models/cluster/site_text.hpp"
#include "models/cluster/variation_text.hpp"

namespace motley {
namespace {

Chip read_chip_of(const Yaml& node, const std::string& folder) {
  if (!node->is_scalar()) return read_chip(node, "chip");
  const std::string path = find_file(to_text(node), folder, "platforms/chips", ".yaml", node->where);
  return read_chip(read_yaml(path, node->where), stem_of(path));
}

std::string print_group(const NodeGroup& group) {
  std::string text = fmt::format("  - name: {}\n    nodes: {}\n    chips_per_node: {}\n    inside: {}\n",
                                 quote(group.name), group.nodes, group.chips_per_node, print_inside(group));
  if (group.pcie) text += fmt::format("    pcie: {}\n", print(*group.pcie));
  if (group.host) text += fmt::format("    host: {}\n", print(*group.host));
  if (group.site) text += fmt::format("    site: {}\n", print(*group.site));
  text += fmt::format("    nics:{}\n", group.nics.empty() ? " []" : "");
  for (const Nic& nic : group.nics) text += fmt::format("      - {}\n", print(nic));
  return text + "    chip:\n" + print(group.chip, "      ");
}

}  // namespace

NodeGroup read_group(const Yaml& node, const std::string& folder) {
  const Fields fields(node, "a group",
                      {"name", "nodes", "chip", "chips_per_node", "inside", "pcie", "host", "site", "nics"});
  NodeGroup group;
  group.name = to_text(fields.need("name"));
  group.nodes = static_cast<int>(to_integer(fields.need("nodes"), kChips));
  group.chip = read_chip_of(fields.need("chip"), folder);
  group.chips_per_node = static_cast<int>(to_integer(fields.need("chips_per_node"), kChipsOfNode));
  if (const Yaml pcie = fields.find("pcie")) group.pcie = read_pcie(pcie, group.chips_per_node);
  group.inside = read_inside(fields.need("inside"), group.chip, group.pcie);
  if (const Yaml host = fields.find("host")) group.host = read_host(host, group.pcie.has_value());
  if (const Yaml site = fields.find("site")) group.site = read_site(site);
  const Yaml nics = fields.find("nics");
  if (!nics) return group;
  for (const Yaml& item : to_sequence(nics)) {
    const Nic nic = read_nic(item, group.chips_per_node);
    for (const Nic& other : group.nics)
      if (other.kind == nic.kind)
        throw Refusal(Exit::usage, "listed-twice", item->where,
                      fmt::format("group `{}` lists {} NICs twice", group.name, name_of(nic.kind)),
                      "one entry for each kind; `count` says how many");
    group.nics.push_back(nic);
  }
  return group;
}

Cluster read_cluster(const Yaml& node, const std::string& default_name, const std::string& folder) {
  const Fields fields(
      node, "a cluster",
      {"name", "groups", "links", "networks", "transport", "links_measured_on", "site", "slow", "variation"});
  Cluster cluster;
  const Yaml name = fields.find("name");
  cluster.name = name ? to_text(name) : default_name;
  const Yaml groups = fields.need("groups");
  for (const Yaml& item : to_sequence(groups)) {
    NodeGroup group = read_group(item, folder);
    for (const NodeGroup& other : cluster.groups)
      if (other.name == group.name)
        throw Refusal(Exit::usage, "listed-twice", item->where,
                      fmt::format("a second group is called `{}`", group.name));
    cluster.groups.push_back(std::move(group));
  }
  std::int64_t chips = 0;
  for (const NodeGroup& group : cluster.groups) chips += std::int64_t{group.nodes} * group.chips_per_node;
  if (chips < 1 || chips > kChips.most)
    throw Refusal(Exit::usage, "out-of-bounds", groups->where, fmt::format("{} chips in this cluster", chips),
                  fmt::format("must be 1 to {}", kChips.most));
  if (const Yaml links = fields.find("links")) read_links(links, cluster);
  if (const Yaml networks = fields.find("networks"))
    for (const Yaml& item : to_sequence(networks)) cluster.networks.push_back(read_network(item, cluster));
  if (const Yaml policy = fields.find("transport")) cluster.transport = to_transport(policy);
  if (const Yaml machine = fields.find("links_measured_on")) cluster.links_measured_on = to_text(machine);
  if (const Yaml site = fields.find("site")) cluster.site = read_site(site);
  try {
    build_topology(cluster);
  } catch (const Refusal& refusal) {
    throw located(refusal, groups->where);
  }
  if (const Yaml variation = fields.find("variation")) cluster.variation = read_variation(variation);
  if (const Yaml slow = fields.find("slow")) {
    cluster.slow = read_slow(slow, cluster);
    build_topology(cluster);
  }
  return cluster;
}

std::string print(const Cluster& cluster) {
  std::string text = fmt::format("name: {}\ngroups:\n", quote(cluster.name));
  for (const NodeGroup& group : cluster.groups) text += print_group(group);
  if (!cluster.links.empty()) text += "links:\n";
  for (const GroupLink& link : cluster.links) text += fmt::format("  - {}\n", print(link));
  if (!cluster.networks.empty()) text += "networks:\n";
  for (const Network& network : cluster.networks) text += fmt::format("  - {}\n", print(network));
  if (cluster.transport != TransportPolicy::by_group)
    text += fmt::format("transport: {}\n", name_of(cluster.transport));
  if (!cluster.links_measured_on.empty())
    text += fmt::format("links_measured_on: {}\n", quote(cluster.links_measured_on));
  if (cluster.site) text += fmt::format("site: {}\n", print(*cluster.site));
  if (!cluster.slow.empty()) text += "slow:\n";
  for (const Slow& slow : cluster.slow) text += fmt::format("  - {}\n", print(slow));
  if (cluster.variation) text += fmt::format("variation: {}\n", print(*cluster.variation));
  return text;
}

Cluster parse_cluster(const std::string& text) { return read_cluster(parse_yaml(text, "cluster"), "", "."); }

Cluster find_cluster(const std::string& name, const std::string& folder, const Location& asked_from) {
  const std::string path = find_file(name, folder, "platforms", ".yaml", asked_from);
  return read_cluster(read_yaml(path, asked_from), stem_of(path), folder_of(path));
}

Cluster load_cluster(const std::string& path_or_name) { return find_cluster(path_or_name, ".", {}); }

}  // namespace motley
