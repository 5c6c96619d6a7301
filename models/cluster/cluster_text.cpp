// Chips and clusters as YAML: the files of platforms/, and what print() writes.
#include <fmt/format.h>

#include "models/describe_text.hpp"
#include "models/measured_layers.hpp"
#include "models/network_text.hpp"
#include "models/node_text.hpp"
#include "models/refusal.hpp"
#include "models/scenario.hpp"
#include "models/site_text.hpp"

namespace motley {
namespace {

constexpr IntegerRange kCount{1, 1 << 20};

// `dimension` nothing: a plain number, here and below.
std::string print_sourced(const Sourced& figure, std::optional<Dimension> dimension) {
  return fmt::format("{{value: {}, source: {}}}",
                     dimension ? format_exact(figure.value, *dimension) : format_exact(figure.value),
                     quote(figure.source));
}

Sourced read_sourced(const Yaml& node, std::optional<Dimension> dimension, Sign sign) {
  const Fields fields(node, "a figure", {"value", "source"});
  const Yaml value = fields.need("value");
  return {dimension ? to_quantity(value, *dimension, sign) : to_number(value, sign),
          to_text(fields.need("source"))};
}

// The figures of a chip in the order of print(); what may be left out is 0, from nobody.
struct Figure {
  std::string key;
  Sourced Chip::*member;
  std::optional<Dimension> dimension;
  bool needed;
};

const std::vector<Figure>& figures() {
  using enum Dimension;
  static const std::vector<Figure> list = {
      {"memory", &Chip::memory_bytes, bytes, true},
      {"reserved_memory", &Chip::reserved_memory, bytes, false},
      {"memory_bandwidth", &Chip::memory_bandwidth, bytes_per_second, true},
      {"multiprocessors", &Chip::multiprocessors, {}, false},
      {"gemm_efficiency", &Chip::gemm_efficiency, {}, true},
      {"gemm_k_half", &Chip::gemm_k_half, {}, false},
      {"gemm_wave", &Chip::gemm_wave, {}, false},
      {"attention_efficiency", &Chip::attention_efficiency, {}, true},
      {"attention_s_half", &Chip::attention_s_half, {}, false},
      {"bandwidth_efficiency", &Chip::bandwidth_efficiency, {}, true},
      {"kernel_overhead", &Chip::kernel_overhead, seconds, false},
      {"step_overhead", &Chip::step_overhead, seconds, false},
      {"gemm_backward", &Chip::gemm_backward, {}, false},
      {"elementwise_passes", &Chip::elementwise_passes, {}, false},
      {"unfused_attention", &Chip::unfused_attention, {}, false},
      {"layer_launch", &Chip::layer_launch, seconds, false},
      {"expert_launch", &Chip::expert_launch, seconds, false},
      {"micro_batch_overhead", &Chip::micro_batch_overhead, seconds, false},
      {"collective_share", &Chip::collective_share, {}, false},
      {"straggling", &Chip::straggling, {}, false},
      {"overlap_slowdown", &Chip::overlap_slowdown, {}, false},
      {"kept_scores", &Chip::kept_scores, {}, false},
      {"kept_masks", &Chip::kept_masks, {}, false},
      {"kept_logits", &Chip::kept_logits, {}, false},
      {"kept_weight_gradients", &Chip::kept_weight_gradients, {}, false},
      {"one_master", &Chip::one_master, {}, false},
      {"kept_optimizer", &Chip::kept_optimizer, {}, false},
      {"power", &Chip::watts, watts, false},
      {"price", &Chip::price_per_hour, dollars_per_hour, false},
  };
  return list;
}

Chip read_chip_of(const Yaml& node, const std::string& folder) {
  if (!node->is_scalar()) return read_chip(node, "chip");
  const std::string path = find_file(to_text(node), folder, "platforms/chips", ".yaml", node->where);
  return read_chip(read_yaml(path, node->where), stem_of(path));
}

NodeGroup read_group(const Yaml& node, const std::string& folder) {
  const Fields fields(node, "a group",
                      {"name", "nodes", "chip", "chips_per_node", "inside", "pcie", "host", "site", "nics"});
  NodeGroup group;
  group.name = to_text(fields.need("name"));
  group.nodes = static_cast<int>(to_integer(fields.need("nodes"), kCount));
  group.chip = read_chip_of(fields.need("chip"), folder);
  group.chips_per_node = static_cast<int>(to_integer(fields.need("chips_per_node"), {1, 1024}));
  if (const Yaml pcie = fields.find("pcie")) group.pcie = read_pcie(pcie, group.chips_per_node);
  group.inside = read_inside(fields.need("inside"), group.pcie);
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

Chip read_chip(const Yaml& node, const std::string& default_name) {
  std::vector<std::string> keys = {"name", "vendor", "kind", "peak", "layers"};
  for (const Figure& figure : figures()) keys.push_back(figure.key);
  const Fields fields(node, "a chip", keys);
  Chip chip;
  const Yaml name = fields.find("name");
  chip.name = name ? to_text(name) : default_name;
  chip.vendor = to_text(fields.need("vendor"));
  chip.kind = to_choice(fields.need("kind"), {"gpu", "cpu", "tpu", "npu"});
  std::vector<std::string> formats;
  for (Format format : kFormats) formats.emplace_back(name_of(format));
  const Fields peaks(fields.need("peak"), "`peak`", formats);
  for (Format format : kFormats)
    if (const Yaml value = peaks.find(name_of(format)))
      chip.peak_flops[format] = read_sourced(value, Dimension::flops, Sign::positive);
  for (const Figure& figure : figures()) {
    const Yaml value = figure.needed ? fields.need(figure.key) : fields.find(figure.key);
    if (value)
      chip.*figure.member =
          read_sourced(value, figure.dimension, figure.needed ? Sign::positive : Sign::not_negative);
  }
  if (const Yaml layers = fields.find("layers")) chip.layers = read_layers(layers);
  if (chip.overlap_slowdown.value > 0 && chip.overlap_slowdown.value < 1)
    throw Refusal(Exit::usage, "out-of-bounds", fields.where("overlap_slowdown"),
                  fmt::format("`overlap_slowdown` is {}, less than 1", chip.overlap_slowdown.value),
                  "communication beside a compute makes it so many times as long");
  return chip;
}

void replace_figures(const Yaml& node, Chip& chip) {
  std::vector<std::string> keys;
  for (const Figure& figure : figures()) keys.push_back(figure.key);
  const Fields fields(node, "figures of a chip", keys);
  for (const Figure& figure : figures())
    if (const Yaml value = fields.find(figure.key))
      chip.*figure.member =
          read_sourced(value, figure.dimension, figure.needed ? Sign::positive : Sign::not_negative);
}

std::string print(const Chip& chip, const std::string& indent) {
  std::string text =
      fmt::format("{0}name: {1}\n{0}vendor: {2}\n{0}kind: {3}\n{0}peak:{4}\n", indent, quote(chip.name),
                  quote(chip.vendor), chip.kind, chip.peak_flops.empty() ? " {}" : "");
  for (const auto& [format, peak] : chip.peak_flops)
    text += fmt::format("{}  {}: {}\n", indent, name_of(format), print_sourced(peak, Dimension::flops));
  for (const Figure& figure : figures())
    if (chip.*figure.member != Sourced{})
      text +=
          fmt::format("{}{}: {}\n", indent, figure.key, print_sourced(chip.*figure.member, figure.dimension));
    else if (figure.member == &Chip::watts || figure.member == &Chip::price_per_hour)
      text += fmt::format("{}{}: null  # unknown\n", indent, figure.key);
  return text + print(chip.layers, indent);
}

Cluster read_cluster(const Yaml& node, const std::string& default_name, const std::string& folder) {
  const Fields fields(node, "a cluster", {"name", "groups", "links", "networks", "transport", "site"});
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
  if (chips < 1 || chips > kCount.most)
    throw Refusal(Exit::usage, "out-of-bounds", groups->where, fmt::format("{} chips in this cluster", chips),
                  fmt::format("must be 1 to {}", kCount.most));
  if (const Yaml links = fields.find("links"))
    for (const Yaml& item : to_sequence(links)) cluster.links.push_back(read_link(item, cluster));
  if (const Yaml networks = fields.find("networks"))
    for (const Yaml& item : to_sequence(networks)) cluster.networks.push_back(read_network(item, cluster));
  if (const Yaml policy = fields.find("transport")) cluster.transport = to_transport(policy);
  if (const Yaml site = fields.find("site")) cluster.site = read_site(site);
  build_topology(cluster);
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
  if (cluster.site) text += fmt::format("site: {}\n", print(*cluster.site));
  return text;
}

Cluster parse_cluster(const std::string& text) { return read_cluster(parse_yaml(text, "cluster"), "", "."); }

}  // namespace motley
