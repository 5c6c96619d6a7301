// Replaces figures of chips and NICs by figures that were fitted to runs of a software.
#include "models/scenario/software.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "models/base/data_files.hpp"

namespace motley {
namespace {

Interval read_interval(const Yaml& node, Regime regime) {
  const Fields fields(node, "an interval", {"low", "high", "source"});
  return {regime, to_number(fields.need("low"), Sign::positive),
          to_number(fields.need("high"), Sign::positive), to_text(fields.need("source"))};
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

// Takes the chip's figures from the nearest related chip that the software knows.
// Assumes: software that reaches a larger share of one chip's peak reaches a larger share of the related chip's peak,
// and its launches and steps take equally long on both.
void inherit(const Yaml& on, Chip& chip) {
  std::optional<Chip> kin;
  Yaml figures;
  double nearest = 0;
  for (const YamlEntry& entry : on->entries) {
    const Chip other = chip_of(entry);
    const double away = std::abs(std::log(half_peak(other) / half_peak(chip)));
    if (other.vendor != chip.vendor || !std::isfinite(away) || (kin && away >= nearest)) continue;
    kin = other;
    figures = entry.value;
    nearest = away;
  }
  if (!kin) return;
  Chip reached = *kin;
  replace_figures(figures, reached);
  const std::string source = fmt::format("inherited from {}", kin->name);
  for (Sourced ChipSoftware::*share : {&ChipSoftware::gemm_efficiency, &ChipSoftware::attention_efficiency})
    if ((reached.software.*share).value != (kin->software.*share).value)
      chip.software.*share = {
          (chip.software.*share).value * (reached.software.*share).value / (kin->software.*share).value,
          source};
  for (Sourced ChipSoftware::*figure :
       {&ChipSoftware::gemm_backward, &ChipSoftware::elementwise_passes, &ChipSoftware::unfused_attention,
        &ChipSoftware::layer_launch, &ChipSoftware::expert_launch, &ChipSoftware::micro_batch_overhead,
        &ChipSoftware::collective_share, &ChipSoftware::straggling, &ChipSoftware::step_overhead,
        &ChipSoftware::overlap_slowdown})
    if ((reached.software.*figure).value != (kin->software.*figure).value)
      chip.software.*figure = {(reached.software.*figure).value, source};
}

Interval interval_of(const char* key, Regime regime) {
  const Yaml file = read_yaml(data_folder() + "/platforms/published/unseen.yaml");
  return read_interval(Fields(file, "a regime", {"interval", "left_out", "experts"}).need(key), regime);
}

}  // namespace

Interval interval_of_unseen() { return interval_of("interval", Regime::unseen); }
Interval interval_of_left_out() { return interval_of("left_out", Regime::similar); }
Interval interval_of_experts() { return interval_of("experts", Regime::similar); }

Interval use_figures(const Yaml& software, Cluster& cluster) {
  const Fields file(software, "software", {"on", "network", "interval"});
  const Yaml on = file.need("on");
  bool all_known = true;
  for (NodeGroup& group : cluster.groups) {
    if (const YamlEntry* const figures = on->find(group.chip.name)) {
      replace_figures(figures->value, group.chip);
    } else {
      all_known = false;
      inherit(on, group.chip);
    }
    if (const Yaml network = file.find("network"))
      for (Nic& nic : group.nics)
        nic.bandwidth *=
            to_number(Fields(network, "a figure", {"value", "source"}).need("value"), Sign::positive);
  }
  build_topology(cluster);
  const Yaml interval = file.find("interval");
  if (interval && all_known) return read_interval(interval, Regime::calibrated);
  return interval_of_left_out();
}

Interval use_software(const Yaml& name, const std::string& folder, Cluster& cluster) {
  const std::string path = find_file(to_text(name), folder, "platforms/software", ".yaml", name->where);
  use_kept(stem_of(path), cluster);
  return use_figures(read_yaml(path, name->where), cluster);
}

void use_kept(const std::string& name, Cluster& cluster) {
  const std::string path = data_folder() + "/platforms/kept/" + name + ".yaml";
  if (!std::filesystem::is_regular_file(path)) return;
  for (NodeGroup& group : cluster.groups)
    if (group.chip.kind != "cpu") replace_figures(read_yaml(path), group.chip);
}

Interval use_software(const std::string& name, Cluster& cluster) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.text = name;
  return use_software(std::make_shared<const YamlNode>(std::move(node)), ".", cluster);
}

}  // namespace motley
