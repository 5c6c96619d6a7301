#include "models/cluster/node_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "models/base/refusal.hpp"
#include "models/cluster/cluster_layout.hpp"

namespace motley {
namespace {

// Reads `reaches: 48.9 GB/s`. A measured rate cannot be more than the line's bandwidth.
double read_share_of(const Yaml& value, double bandwidth) {
  const double rate = to_quantity(value, Dimension::bytes_per_second, Sign::positive);
  if (rate > bandwidth)
    throw Refusal(Exit::usage, "faster-than-line", value->where,
                  fmt::format("`{}` is more than the bandwidth, {}", value->text,
                              format_exact(bandwidth, Dimension::bytes_per_second)),
                  "a measured rate cannot exceed the bandwidth");
  return rate;
}

double read_reaches(const Fields& fields, double bandwidth) {
  const Yaml value = fields.find("reaches");
  return value ? read_share_of(value, bandwidth) : 0;
}

std::string print_reaches(double reaches) {
  return reaches > 0 ? fmt::format(", reaches: {}", format_exact(reaches, Dimension::bytes_per_second)) : "";
}

std::vector<int> read_chips(const Yaml& node, int chips_per_node) {
  std::vector<int> chips;
  for (const Yaml& item : to_sequence(node)) {
    const int chip = static_cast<int>(to_integer(item, {0, chips_per_node - 1}));
    if (std::find(chips.begin(), chips.end(), chip) != chips.end())
      throw Refusal(Exit::usage, "nic-affinity", item->where, fmt::format("chip {} is listed twice", chip),
                    "each NIC lists the chips near it once");
    chips.push_back(chip);
  }
  if (chips.empty())
    throw Refusal(Exit::usage, "nic-affinity", node->where, "this NIC is near no chip",
                  "list the chips near it, as `[0, 1]`");
  return chips;
}

std::vector<std::vector<int>> read_near(const Yaml& node, const Nic& nic, int chips_per_node) {
  std::vector<std::vector<int>> near;
  for (const Yaml& item : to_sequence(node)) near.push_back(read_chips(item, chips_per_node));
  if (static_cast<int>(near.size()) != nic.count)
    throw Refusal(Exit::usage, "nic-affinity", node->where,
                  fmt::format("{} NICs, and `near` has {} lists", nic.count, near.size()),
                  "one list of chips for each NIC, as `[[0, 1], [2, 3]]`");
  const auto as_set = [](const std::vector<int>& chips) { return std::set<int>(chips.begin(), chips.end()); };
  for (std::size_t i = 0; i < near.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const std::set<int> one = as_set(near[i]), other = as_set(near[j]);
      const auto shared =
          std::find_if(one.begin(), one.end(), [&](int chip) { return other.contains(chip); });
      if (one != other && shared != one.end())
        throw Refusal(
            Exit::usage, "nic-affinity", node->items[i]->where,
            fmt::format("chip {} is near NICs {} and {}, which are near unlike chips", *shared, j, i),
            "NICs either share all their chips (flows are striped over them) or none");
    }
  return near;
}

// The usual rate of each chip while NVSwitch reduces, in bytes/s. NVSwitches of the third generation and later do:
// those that join NVIDIA's chips since Hopper, the first with FP8; Blackwell is the first with FP4.
// Share of a port beside latency: 320 of 450 GB/s on 8 H100, 560 of 900 on 8 B200 (nccl-tests with NVLS, 8 GiB,
// github:stas00/ml-engineering network/README.md, 2025).
double usual_in_switch(FabricKind kind, const Chip& chip, double bandwidth) {
  constexpr double kHopper = 320.0 / 450, kBlackwell = 560.0 / 900;
  if (kind != FabricKind::nvswitch || chip.vendor != "nvidia" || !chip.peak_flops.contains(Format::fp8))
    return 0;
  return bandwidth * (chip.peak_flops.contains(Format::nvfp4) ? kBlackwell : kHopper);
}

std::string print_in_switch(const NodeGroup& group) {
  const InsideFabric& inside = group.inside;
  if (inside.in_switch == usual_in_switch(inside.kind, group.chip, inside.bandwidth)) return "";
  if (inside.in_switch == 0) return ", in_switch: none";
  return fmt::format(", in_switch: {}", format_exact(inside.in_switch, Dimension::bytes_per_second));
}

}  // namespace

NicKind to_nic_kind(const Yaml& node) { return to_choice<NicKind>(node); }

InsideFabric read_inside(const Yaml& node, const Chip& chip, const std::optional<Pcie>& pcie) {
  const Fields fields(node, "`inside`", {"fabric", "bandwidth", "latency", "reaches", "in_switch"});
  InsideFabric inside;
  inside.kind = to_choice<FabricKind>(fields.need("fabric"));
  if (inside.kind == FabricKind::pcie && pcie) {
    for (const char* key : {"bandwidth", "reaches"})
      if (fields.find(key))
        throw Refusal(Exit::usage, "pcie-tree", fields.where(key),
                      fmt::format("`{}` follows from the group's `pcie`", key), "leave it out here");
    inside.bandwidth = pcie_bandwidth(pcie->generation, pcie->lanes);
  } else {
    inside.bandwidth = to_quantity(fields.need("bandwidth"), Dimension::bytes_per_second, Sign::positive);
    inside.reaches = read_reaches(fields, inside.bandwidth);
  }
  if (const Yaml value = fields.find("latency"))
    inside.latency_s = to_quantity(value, Dimension::seconds, Sign::not_negative);
  inside.in_switch = usual_in_switch(inside.kind, chip, inside.bandwidth);
  if (const Yaml value = fields.find("in_switch")) {
    if (inside.kind != FabricKind::nvswitch)
      throw Refusal(Exit::usage, "no-switch", value->where,
                    fmt::format("`{}` has no switch that could reduce", name_of(inside.kind)),
                    "`in_switch` is for `fabric: nvswitch`");
    const bool none = value->is_scalar() && value->text == "none";
    inside.in_switch = none ? 0 : read_share_of(value, inside.bandwidth);
  }
  return inside;
}

Pcie read_pcie(const Yaml& node, int chips_per_node) {
  const Fields fields(
      node, "`pcie`",
      {"generation", "lanes", "nic_lanes", "switches", "uplink_lanes", "sockets", "socket_link", "reaches"});
  Pcie pcie;
  const auto integer = [&](const char* key, int& into, IntegerRange range) {
    if (const Yaml value = fields.find(key)) into = static_cast<int>(to_integer(value, range));
  };
  pcie.generation = static_cast<int>(to_integer(fields.need("generation"), {1, 6}));
  pcie.lanes = static_cast<int>(to_integer(fields.need("lanes"), {1, 16}));
  integer("nic_lanes", pcie.nic_lanes, {1, 32});
  integer("switches", pcie.switches, {1, chips_per_node});
  integer("uplink_lanes", pcie.uplink_lanes, {1, 64});
  integer("sockets", pcie.sockets, {1, 8});
  if (pcie.switches % pcie.sockets != 0)
    throw Refusal(Exit::usage, "pcie-tree", fields.where("sockets"),
                  fmt::format("{} switches cannot be shared out to {} sockets", pcie.switches, pcie.sockets),
                  "each socket has as many `switches` as the others");
  if (pcie.sockets > 1)
    pcie.socket_link = to_quantity(fields.need("socket_link"), Dimension::bytes_per_second, Sign::positive);
  else if (fields.find("socket_link"))
    throw Refusal(Exit::usage, "pcie-tree", fields.where("socket_link"), "there is one socket",
                  "`socket_link` joins two: say `sockets: 2`, or leave it out");
  pcie.reaches = read_reaches(fields, pcie_bandwidth(pcie.generation, pcie.lanes));
  return pcie;
}

Host read_host(const Yaml& node, bool has_pcie) {
  const Fields fields(node, "`host`", {"memory", "memory_bandwidth", "link", "measured"});
  Host host;
  host.memory = to_quantity(fields.need("memory"), Dimension::bytes, Sign::positive);
  host.memory_bandwidth =
      to_quantity(fields.need("memory_bandwidth"), Dimension::bytes_per_second, Sign::positive);
  if (!has_pcie)
    host.link = to_quantity(fields.need("link"), Dimension::bytes_per_second, Sign::positive);
  else if (fields.find("link"))
    throw Refusal(Exit::usage, "pcie-tree", fields.where("link"),
                  "chips reach the host through the `pcie` tree", "leave `link` out, or `pcie`");
  if (const Yaml measured = fields.find("measured")) host.measured = to_text(measured);
  return host;
}

Nic read_nic(const Yaml& node, int chips_per_node) {
  const Fields fields(
      node, "a NIC",
      {"kind", "count", "bandwidth", "latency", "near", "far", "reaches", "streams", "processors"});
  Nic nic;
  nic.kind = to_nic_kind(fields.need("kind"));
  nic.count = static_cast<int>(to_integer(fields.need("count"), {1, 1024}));
  nic.bandwidth = to_quantity(fields.need("bandwidth"), Dimension::bytes_per_second, Sign::positive);
  if (const Yaml value = fields.find("latency"))
    nic.latency_s = to_quantity(value, Dimension::seconds, Sign::not_negative);
  if (const Yaml value = fields.find("near")) nic.near = read_near(value, nic, chips_per_node);
  if (const Yaml value = fields.find("far"))
    nic.far = to_bounded_number(
        value, {.sign = Sign::positive,
                .most = 1,
                .hint = "at most 1: `far` is the share of the rate that a chip keeps on a NIC that "
                        "is not near it"});
  nic.reaches = read_reaches(fields, nic.bandwidth);
  if (const Yaml value = fields.find("streams")) nic.streams = static_cast<int>(to_integer(value, {1, 1024}));
  if (const Yaml value = fields.find("processors"))
    nic.processors = static_cast<int>(to_integer(value, {1, 1024}));
  return nic;
}

std::string print_inside(const NodeGroup& group) {
  const InsideFabric& inside = group.inside;
  std::string text = fmt::format("{{fabric: {}", name_of(inside.kind));
  if (!is_pcie_tree(group))
    text += fmt::format(", bandwidth: {}", format_exact(inside.bandwidth, Dimension::bytes_per_second));
  return text + fmt::format(", latency: {}{}}}", format_exact(inside.latency_s, Dimension::seconds),
                            print_reaches(inside.reaches) + print_in_switch(group));
}

std::string print(const Pcie& pcie) {
  std::string text = fmt::format(
      "{{generation: {}, lanes: {}, nic_lanes: {}, switches: {}, uplink_lanes: {}, sockets: {}",
      pcie.generation, pcie.lanes, pcie.nic_lanes, pcie.switches, pcie.uplink_lanes, pcie.sockets);
  if (pcie.sockets > 1)
    text += fmt::format(", socket_link: {}", format_exact(pcie.socket_link, Dimension::bytes_per_second));
  return text + print_reaches(pcie.reaches) + "}";
}

std::string print(const Host& host) {
  std::string text =
      fmt::format("{{memory: {}, memory_bandwidth: {}", format_exact(host.memory, Dimension::bytes),
                  format_exact(host.memory_bandwidth, Dimension::bytes_per_second));
  if (host.link > 0) text += fmt::format(", link: {}", format_exact(host.link, Dimension::bytes_per_second));
  if (!host.measured.empty()) text += fmt::format(", measured: {}", quote(host.measured));
  return text + "}";
}

std::string print(const Nic& nic) {
  std::string text =
      fmt::format("{{kind: {}, count: {}, bandwidth: {}, latency: {}", name_of(nic.kind), nic.count,
                  format_line_rate(nic.bandwidth), format_exact(nic.latency_s, Dimension::seconds));
  if (!nic.near.empty()) text += fmt::format(", near: {}", nic.near);
  if (nic.far != 1) text += fmt::format(", far: {}", format_exact(nic.far));
  text += print_reaches(nic.reaches);
  if (nic.streams > 0) text += fmt::format(", streams: {}", nic.streams);
  if (nic.processors > 0) text += fmt::format(", processors: {}", nic.processors);
  return text + "}";
}

}  // namespace motley
