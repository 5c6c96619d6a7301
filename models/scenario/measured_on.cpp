#include "models/scenario/measured_on.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace motley {

MeasuredOn measured_on(const Cluster& cluster) {
  const NodeGroup& group = cluster.groups.at(0);
  MeasuredOn place{.chip = group.chip.name,
                   .chips_per_node = group.chips_per_node,
                   .chips = std::int64_t{group.nodes} * group.chips_per_node};
  if (group.nics.empty() || group.nodes <= 1) return place;
  const Nic& nic = group.nics.front();
  place.nic = nic.kind;
  place.bandwidth_a_chip = nic.count * nic.bandwidth / group.chips_per_node;
  return place;
}

bool was_measured(const std::vector<MeasuredOn>& measured, const Cluster& cluster) {
  constexpr double kNearly = 1.25;
  constexpr std::int64_t kFarMore = 2;
  const MeasuredOn here = measured_on(cluster);
  return cluster.groups.size() == 1 &&
         std::any_of(measured.begin(), measured.end(), [&](const MeasuredOn& each) {
           if (each.chip != here.chip || here.chips_per_node > each.chips_per_node) return false;
           if (here.bandwidth_a_chip == 0) return true;
           const double ratio = here.bandwidth_a_chip / each.bandwidth_a_chip;
           return each.bandwidth_a_chip > 0 && each.nic == here.nic && here.chips <= kFarMore * each.chips &&
                  ratio <= kNearly && ratio >= 1 / kNearly;
         });
}

std::vector<MeasuredOn> read_measured_on(const Yaml& node) {
  std::vector<MeasuredOn> measured;
  for (const Yaml& item : to_sequence(node)) {
    const Fields fields(item, "a place of measurement",
                        {"chip", "chips_per_node", "nic", "bandwidth", "chips"});
    MeasuredOn& place = measured.emplace_back();
    place.chip = to_text(fields.need("chip"));
    place.chips_per_node = static_cast<int>(to_integer(fields.need("chips_per_node"), {1, kChips.most}));
    place.chips = to_integer(fields.need("chips"), kPositive);
    if (const Yaml nic = fields.find("nic")) {
      place.nic = to_choice<NicKind>(nic);
      place.bandwidth_a_chip =
          to_quantity(fields.need("bandwidth"), Dimension::bytes_per_second, Sign::positive);
    }
  }
  return measured;
}

std::string print(const std::vector<MeasuredOn>& measured) {
  std::string text;
  for (const MeasuredOn& each : measured) {
    const std::string nics =
        each.bandwidth_a_chip > 0
            ? fmt::format(", nic: {}, bandwidth: {:.4g} GB/s", name_of(each.nic), each.bandwidth_a_chip / 1e9)
            : "";
    text += fmt::format("  - {{chip: {}, chips: {}, chips_per_node: {}{}}}\n", quote(each.chip), each.chips,
                        each.chips_per_node, nics);
  }
  return text;
}

}  // namespace motley
