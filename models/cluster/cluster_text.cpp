// A cluster as YAML: the files of platforms/, and what print() writes.
#include <fmt/format.h>

#include <algorithm>

#include "models/base/all_refusals.hpp"
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

// The group of the chip's usual nodes, the first of the cluster that has them; nullptr: none is known.
Yaml usual_group(const Chip& chip, const Location& asked_from) {
  if (chip.usual_node.empty()) return nullptr;
  const Yaml cluster =
      read_yaml(find_file(chip.usual_node, ".", "platforms", ".yaml", asked_from), asked_from);
  const YamlEntry* const groups = cluster->find("groups");
  return groups == nullptr || groups->value->items.empty() ? nullptr : groups->value->items.front();
}

// A group as it is written, with what it leaves out of its nodes taken from the usual ones.
Yaml completed(const Yaml& group, const Yaml& usual) {
  auto whole = std::make_shared<YamlNode>(*group);
  for (const YamlEntry& entry : usual->entries)
    if (entry.key != "name" && entry.key != "nodes" && entry.key != "chip" &&
        whole->find(entry.key) == nullptr)
      whole->entries.push_back(entry);
  return whole;
}

std::string remark_on_usual(const NodeGroup& group) {
  return fmt::format(
      "the nodes of `{}` are the usual ones of its chip, as in `{}`: `motley show cluster` prints them",
      group.name, group.chip.usual_node);
}

// Remarks on a bandwidth that is both directions' together, as makers print it.
void add_doubts(NodeGroup& group, const Yaml& usual) {
  const YamlEntry* const inside = usual->find("inside");
  const YamlEntry* const bandwidth = inside != nullptr ? inside->value->find("bandwidth") : nullptr;
  if (bandwidth == nullptr || group.pcie) return;
  const double one_way = to_quantity(bandwidth->value, Dimension::bytes_per_second, Sign::positive);
  constexpr double kBothWays = 1.9;
  if (group.inside.bandwidth < kBothWays * one_way) return;
  group.remarks.texts.push_back(fmt::format(
      "`inside` of `{}` has {}: its chips usually have {} in each direction, and makers print the sum of "
      "both",
      group.name, format_exact(group.inside.bandwidth, Dimension::bytes_per_second), bandwidth->value->text));
}

// Assumes: beside its RDMA NICs a node has an Ethernet port of 100 Gb/s, as those of a DGX BasePOD at their SN4600C
// switches (NVIDIA, DGX BasePOD, network overview, read 2026-11-27); 30 us is the latency of the shipped clusters.
const Nic kUsualPort{.kind = NicKind::ethernet, .count = 1, .bandwidth = 12.5e9, .latency_s = 30e-6};

void add_usual_port(NodeGroup& group) {
  const bool has_one = std::any_of(group.nics.begin(), group.nics.end(),
                                   [](const Nic& nic) { return nic.kind == kUsualPort.kind; });
  if (!has_one) group.nics.push_back(kUsualPort);
}

// Joins groups where nothing says how: groups of usual nodes to all others by the fastest kind of NIC that both have,
// else to each other by an Ethernet port of each node.
void add_usual_links(Cluster& cluster) {
  for (std::size_t to = 1; to < cluster.groups.size(); ++to) {
    NodeGroup& group = cluster.groups[to];
    std::vector<std::string> joined;
    for (std::size_t from = 0; from < to; ++from) {
      NodeGroup& other = cluster.groups[from];
      const bool both = other.remarks.has_usual_nodes && group.remarks.has_usual_nodes;
      const bool either = other.remarks.has_usual_nodes || group.remarks.has_usual_nodes;
      const std::optional<NicKind> shared = fastest_shared_kind(other, group);
      if (shared ? !either : !both) continue;
      if (!shared) {
        add_usual_port(other);
        add_usual_port(group);
      }
      cluster.links.push_back(
          {.from = other.name, .to = group.name, .over = shared.value_or(kUsualPort.kind)});
      joined.push_back(fmt::format("to `{}` over {}", other.name,
                                   shared ? name_of(*shared) : "an Ethernet port of 100 Gb/s of each node"));
    }
    if (!joined.empty())
      group.remarks.texts.push_back(fmt::format("`links` does not say how `{}` is joined; assumed: {}",
                                                group.name, fmt::join(joined, ", ")));
  }
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

Yaml with_usual_part(const Yaml& group, std::string_view key, const std::string& folder) {
  const YamlEntry* const chip = group->find("chip");
  if (chip == nullptr || group->find(key) != nullptr || group->find("inside") != nullptr) return group;
  const Yaml usual = usual_group(read_chip_of(chip->value, folder), group->where);
  if (!usual) return group;
  if (key == "inside") return completed(group, usual);
  auto with_part = std::make_shared<YamlNode>(*group);
  if (const YamlEntry* const part = usual->find(key)) with_part->entries.push_back(*part);
  return with_part;
}

NodeGroup read_group(const Yaml& node, const std::string& folder) {
  const std::vector<std::string> keys = {"name", "nodes", "chip", "chips_per_node", "inside", "pcie",
                                         "host", "site",  "nics"};
  const Fields own(node, "a group", keys);
  NodeGroup group;
  group.chip = read_chip_of(own.need("chip"), folder);
  const Yaml name = own.find("name");
  group.name = name ? to_text(name) : group.chip.name;
  group.nodes = static_cast<int>(to_integer(own.need("nodes"), kChips));
  const Yaml usual = usual_group(group.chip, node->where);
  const bool is_usual = usual && own.find("inside") == nullptr;
  if (is_usual) group.remarks = {.texts = {remark_on_usual(group)}, .has_usual_nodes = true};
  const Fields fields(is_usual ? completed(node, usual) : node, "a group", keys);
  // A key that the usual node has is not needed in the group.
  const auto part = [&](const char* key) {
    const Yaml value = is_usual ? fields.find(key) : nullptr;
    return value ? value : fields.need(key);
  };
  group.chips_per_node = static_cast<int>(to_integer(part("chips_per_node"), kChipsOfNode));
  if (const Yaml pcie = fields.find("pcie")) group.pcie = read_pcie(pcie, group.chips_per_node);
  group.inside = read_inside(part("inside"), group.chip, group.pcie);
  if (usual && !is_usual) add_doubts(group, usual);
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
  if (const Yaml links = fields.find("links"))
    read_links(links, cluster);
  else if (!fields.stands("links") && !fields.stands("networks"))
    add_usual_links(cluster);
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

Cluster load_cluster(const std::string& path_or_name) {
  return telling_all_refusals([&] { return find_cluster(path_or_name, ".", {}); });
}

}  // namespace motley
