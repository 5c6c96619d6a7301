// Replaces figures of chips and NICs by figures that were fitted to runs of a software.
#include "models/scenario/software.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>

#include "models/base/data_files.hpp"
#include "models/scenario/measured_on.hpp"

namespace motley {
namespace {

// Figures that a software carries from chip to chip. A share is a part of the chip's peak; the others are the
// software's own.
struct CarriedFigure {
  const char* key;
  Sourced ChipSoftware::*member;
  bool share;
};
constexpr std::array kCarried = {
    CarriedFigure{"gemm_efficiency", &ChipSoftware::gemm_efficiency, true},
    CarriedFigure{"attention_efficiency", &ChipSoftware::attention_efficiency, true},
    CarriedFigure{"gemm_backward", &ChipSoftware::gemm_backward, false},
    CarriedFigure{"elementwise_passes", &ChipSoftware::elementwise_passes, false},
    CarriedFigure{"unfused_attention", &ChipSoftware::unfused_attention, false},
    CarriedFigure{"layer_launch", &ChipSoftware::layer_launch, false},
    CarriedFigure{"expert_launch", &ChipSoftware::expert_launch, false},
    CarriedFigure{"launch_wait", &ChipSoftware::launch_wait, false},
    CarriedFigure{"micro_batch_overhead", &ChipSoftware::micro_batch_overhead, false},
    CarriedFigure{"pass_overhead", &ChipSoftware::pass_overhead, false},
    CarriedFigure{"collective_share", &ChipSoftware::collective_share, false},
    CarriedFigure{"variation", &ChipSoftware::variation, false},
    CarriedFigure{"step_overhead", &ChipSoftware::step_overhead, false},
    CarriedFigure{"overlap_slowdown", &ChipSoftware::overlap_slowdown, false},
};

// How much a file of figures knows of a chip.
enum class Known : std::uint8_t { chip, family, nothing };

Fields file_of(const Yaml& software) {
  return {software, "software", {"on", "any", "network", "interval", "measured"}};
}

// The file's `on`; null: it has none, but `any`.
Yaml chips_of(const Yaml& software) {
  const Fields file = file_of(software);
  return file.find("any") ? file.find("on") : file.need("on");
}

Interval read_interval(const Yaml& node, Regime regime) {
  const Fields fields(node, "an interval", {"low", "high", "source"});
  return {regime,
          to_number(fields.need("low"), Sign::positive),
          to_number(fields.need("high"), Sign::positive),
          to_text(fields.need("source")),
          {}};
}

double half_peak(const Chip& chip) {
  for (Format format : {Format::bf16, Format::fp16, Format::fp32})
    if (const auto peak = chip.peak_flops.find(format); peak != chip.peak_flops.end())
      return peak->second.value;
  return 0;
}

// The chip that a key of `on` names.
Chip chip_of(const YamlEntry& entry) {
  try {
    return load_chip(entry.key);
  } catch (const Refusal& refusal) {
    throw located(refusal, entry.where);
  }
}

bool is_kin(const Chip& a, const Chip& b) {
  return a.vendor == b.vendor && !a.family.empty() && a.family == b.family;
}

// The entry of `on` for the kin of the chip with the nearest 16-bit peak; nullptr: it has no kin.
const YamlEntry* kin_of(const Chip& chip, const Yaml& on) {
  const YamlEntry* kin = nullptr;
  double nearest = 0;
  for (const YamlEntry& entry : on->entries) {
    const Chip other = chip_of(entry);
    const double away = std::abs(std::log(half_peak(other) / half_peak(chip)));
    if (!is_kin(other, chip) || !std::isfinite(away) || (kin != nullptr && away >= nearest)) continue;
    kin = &entry;
    nearest = away;
  }
  return kin;
}

// Assumes: software that reaches a larger share of one chip's peak reaches a larger share of the related chip's peak,
// and its launches and steps take equally long on both.
void inherit(const YamlEntry& entry, Chip& chip) {
  const Chip kin = chip_of(entry);
  Chip reached = kin;
  replace_figures(entry.value, reached);
  const std::string source = fmt::format("inherited from {}", kin.name);
  for (const CarriedFigure& each : kCarried) {
    const double before = (kin.software.*each.member).value, after = (reached.software.*each.member).value;
    if (after == before) continue;
    Sourced& figure = chip.software.*each.member;
    figure = {each.share ? figure.value * after / before : after, source};
  }
}

Known known_of(const Chip& chip, const Yaml& on) {
  if (!on) return Known::nothing;
  return on->find(chip.name) != nullptr ? Known::chip
         : kin_of(chip, on) != nullptr  ? Known::family
                                        : Known::nothing;
}

// How much `on` knows of the chip of which it knows least; CPUs do not count.
Known known_of(const Cluster& cluster, const Yaml& on) {
  Known least = Known::chip;
  for (const NodeGroup& group : cluster.groups)
    if (group.chip.kind != "cpu") least = std::max(least, known_of(group.chip, on));
  return least;
}

void use_figures_of_chip(const Yaml& on, Chip& chip) {
  if (const YamlEntry* const figures = on->find(chip.name))
    replace_figures(figures->value, chip);
  else
    inherit(*kin_of(chip, on), chip);
}

Interval interval_of(const char* key, Regime regime) {
  const Yaml file = read_yaml(data_folder() + "/platforms/published/unseen.yaml");
  return read_interval(Fields(file, "a regime", {"interval", "left_out", "experts", "own"}).need(key),
                       regime);
}

// Does what use_figures() does, where the file knows that much of the cluster's chips.
Interval use_figures(const Yaml& software, Known known, const std::string& name, Cluster& cluster) {
  const Fields file = file_of(software);
  const Yaml on = file.find("on"), network = file.find("network");
  const bool says_any = file.find("any") != nullptr;  // read also where it is not used: it may have a mistake
  const ChipSoftware neutral =
      known == Known::nothing || says_any ? neutral_figures(software) : ChipSoftware{};
  for (NodeGroup& group : cluster.groups) {
    if (group.chip.kind == "cpu") continue;
    if (known == Known::nothing)
      use_neutral_figures(neutral, group.chip);
    else
      use_figures_of_chip(on, group.chip);
    if (network)
      for (Nic& nic : group.nics)
        nic.bandwidth *=
            to_number(Fields(network, "a figure", {"value", "source"}).need("value"), Sign::positive);
  }
  if (network) build_topology(cluster);
  const Yaml interval = file.find("interval"), measured = file.find("measured");
  Interval result = interval ? read_interval(interval, Regime::calibrated) : interval_of_left_out();
  const bool elsewhere = measured && !was_measured(read_measured_on(measured), cluster);
  if (interval && (known >= Known::family || elsewhere)) result = widened(interval_of_left_out(), result);
  if (known == Known::nothing) result = widened(interval_of_unnamed(), result);
  result.software = name;
  return result;
}

}  // namespace

Interval interval_of_unnamed() { return interval_of("interval", Regime::unseen); }
Interval interval_of_left_out() { return interval_of("left_out", Regime::similar); }
Interval interval_of_experts() { return interval_of("experts", Regime::similar); }
Interval interval_of_own() { return interval_of("own", Regime::unseen); }

Interval widened(const Interval& interval, const Interval& other) {
  Interval wider = interval;
  if (other.low < wider.low || other.high > wider.high)
    wider.source = fmt::format("{}; and {}", interval.source, other.source);
  wider.low = std::min(wider.low, other.low);
  wider.high = std::max(wider.high, other.high);
  return wider;
}

Interval interval_with_experts(const Interval& interval) {
  Interval wider = widened(interval, interval_of_experts());
  wider.regime = std::max(interval.regime, Regime::similar);
  return wider;
}

ChipSoftware neutral_figures(const Yaml& software) {
  const Fields file = file_of(software);
  Chip neutral;
  if (const Yaml any = file.find("any")) {
    static_cast<void>(Fields(any, "figures of any chip", neutral_keys()));
    replace_figures(any, neutral, FigureUse::factors);
    return neutral.software;
  }
  const Yaml on = file.find("on");
  if (!on) return neutral.software;
  for (const CarriedFigure& each : kCarried) {
    if (each.member == &ChipSoftware::unfused_attention || each.member == &ChipSoftware::launch_wait)
      continue;
    double logs = 0;
    int chips = 0;
    for (const YamlEntry& entry : on->entries) {
      if (entry.value->find(each.key) == nullptr) continue;
      const Chip own = chip_of(entry);
      Chip reached = own;
      replace_figures(entry.value, reached);
      const double figure = (reached.software.*each.member).value,
                   ratio = each.share ? figure / (own.software.*each.member).value : figure;
      if (ratio <= 0) continue;
      logs += std::log(ratio);
      ++chips;
    }
    if (chips > 0)
      neutral.software.*
          each.member = {std::exp(logs / chips), fmt::format("mean over {} chips of the software", chips)};
  }
  return neutral.software;
}

void use_neutral_figures(const ChipSoftware& neutral, Chip& chip) {
  for (const CarriedFigure& each : kCarried) {
    const Sourced& from = neutral.*each.member;
    Sourced& figure = chip.software.*each.member;
    if (from.value <= 0) continue;
    if (each.share)
      figure = {figure.value * from.value, from.source};
    else if (figure.value == 0)
      figure = from;
  }
}

std::vector<std::string> neutral_keys() {
  std::vector<std::string> keys;
  for (const CarriedFigure& each : kCarried) keys.emplace_back(each.key);
  return keys;
}

Interval use_figures(const Yaml& software, Cluster& cluster, const std::string& name) {
  return use_figures(software, known_of(cluster, chips_of(software)), name, cluster);
}

Interval use_software(const Yaml& name, const std::string& folder, Cluster& cluster) {
  if (to_text(name) == kNoSoftware) return interval_of_own();
  const std::string path = find_file(to_text(name), folder, "platforms/software", ".yaml", name->where);
  const Yaml software = read_yaml(path, name->where);
  const Known known = known_of(cluster, chips_of(software));
  // Assumes: nothing is known of what a software keeps in memory on chips of which it has no figures.
  if (known != Known::nothing) use_kept(stem_of(path), cluster);
  return use_figures(software, known, stem_of(path), cluster);
}

Interval use_usual_software(Cluster& cluster) { return use_software(kUsualSoftware, cluster); }

OwnFigures own_figures(const Cluster& cluster) {
  OwnFigures own;
  for (const NodeGroup& group : cluster.groups) own.push_back(group.chip.software);
  return own;
}

void use_own_figures(const OwnFigures& own, Cluster& cluster) {
  for (std::size_t i = 0; i < cluster.groups.size(); ++i) {
    ChipSoftware& software = cluster.groups[i].chip.software;
    const Sourced hidden = software.collective_share;
    software = own.at(i);
    software.collective_share = hidden;
  }
}

void use_kept(const std::string& name, Cluster& cluster) {
  const std::string path = data_folder() + "/platforms/kept/" + name + ".yaml";
  if (!std::filesystem::is_regular_file(path)) return;
  const Yaml kept = read_yaml(path);
  for (NodeGroup& group : cluster.groups)
    if (group.chip.kind != "cpu") replace_figures(kept, group.chip);
}

Interval use_software(const std::string& name, Cluster& cluster) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.text = name;
  return use_software(std::make_shared<const YamlNode>(std::move(node)), ".", cluster);
}

}  // namespace motley
