// A chip as YAML: the files of platforms/chips, and what print() writes.
#include <fmt/format.h>

#include <optional>
#include <type_traits>
#include <variant>

#include "models/base/all_refusals.hpp"
#include "models/base/data_files.hpp"
#include "models/base/refusal.hpp"
#include "models/cluster/chip.hpp"
#include "models/cluster/chip_figures.hpp"
#include "models/cluster/measured_layers.hpp"

namespace motley {
namespace {

// The member that holds a figure. Its struct tells whether the figure is from a datasheet.
using FigureMember = std::variant<Sourced Chip::*, Sourced ChipSoftware::*, SourcedSwitch ChipSoftware::*>;
// What an absent figure causes: its chip is refused, print() leaves it out, or print() writes null.
enum class Absent : std::uint8_t { refused, left_out, unknown };

// What a plain number counts, and the most that it can be. The smallest values are those of any plain number.
struct Kind {
  double most = 0;
  const char* what = "";
};
// Assumes: no chip and no network is faster than its maker says by more than a half (a fit of published runs has 1.16
// of a network's rate), no software is slower than its kernels' formulas by more than a factor of a thousand, and none
// keeps more than 4 KiB for an element.
constexpr Kind kShare{1, "a share"}, kReached{1.5, "what is reached of a stated rate"},
    kFactor{1000, "a factor"}, kHalving{1 << 22, "a size at which a share halves"},
    kUnits{1 << 20, "a number of units"}, kKept{4096, "bytes of one element"},
    kDeviation{0.3, "a standard deviation of speeds"};

struct Figure {
  std::string key;
  FigureMember member;
  std::variant<Dimension, Kind> unit;
  Absent absent = Absent::left_out;

  std::optional<Dimension> dimension() const {  // nothing: the figure is a plain number
    const auto* const dimension = std::get_if<Dimension>(&unit);
    return dimension == nullptr ? std::nullopt : std::optional(*dimension);
  }
};

// Lists the figures in the order of print().
const std::vector<Figure>& figures() {
  using enum Dimension;
  static const std::vector<Figure> list = {
      {"memory", &Chip::memory_bytes, bytes, Absent::refused},
      {"reserved_memory", &ChipSoftware::reserved_memory, bytes},
      {"memory_bandwidth", &Chip::memory_bandwidth, bytes_per_second, Absent::refused},
      {"multiprocessors", &Chip::multiprocessors, kUnits},
      {"gemm_efficiency", &ChipSoftware::gemm_efficiency, kReached, Absent::refused},
      {"gemm_k_half", &ChipSoftware::gemm_k_half, kHalving},
      {"gemm_wave", &ChipSoftware::gemm_wave, kShare},
      {"attention_efficiency", &ChipSoftware::attention_efficiency, kReached, Absent::refused},
      {"attention_s_half", &ChipSoftware::attention_s_half, kHalving},
      {"bandwidth_efficiency", &ChipSoftware::bandwidth_efficiency, kReached, Absent::refused},
      {"kernel_overhead", &ChipSoftware::kernel_overhead, seconds},
      {"step_overhead", &ChipSoftware::step_overhead, seconds},
      {"gemm_backward", &ChipSoftware::gemm_backward, kFactor},
      {"elementwise_passes", &ChipSoftware::elementwise_passes, kFactor},
      {"unfused_attention", &ChipSoftware::unfused_attention, kFactor},
      {"layer_launch", &ChipSoftware::layer_launch, seconds},
      {"expert_launch", &ChipSoftware::expert_launch, seconds},
      {"launch_wait", &ChipSoftware::launch_wait, kShare},
      {"micro_batch_overhead", &ChipSoftware::micro_batch_overhead, seconds},
      {"pass_overhead", &ChipSoftware::pass_overhead, seconds},
      {"collective_share", &ChipSoftware::collective_share, kReached},
      {"variation", &ChipSoftware::variation, kDeviation},
      {"overlap_slowdown", &ChipSoftware::overlap_slowdown, kFactor},
      {"kept_scores", &ChipSoftware::kept_scores, kKept},
      {"kept_masks", &ChipSoftware::kept_masks, kKept},
      {"kept_logits", &ChipSoftware::kept_logits, kKept},
      {"kept_weight_gradients", &ChipSoftware::kept_weight_gradients, kKept},
      {"one_master", &ChipSoftware::one_master, kShare},
      {"kept_optimizer", &ChipSoftware::kept_optimizer, kKept},
      {"kept_weights", &ChipSoftware::kept_weights, kKept},
      {"power", &Chip::watts, watts, Absent::unknown},
      {"price", &Chip::price_per_hour, dollars_per_hour, Absent::unknown},
  };
  return list;
}

bool in_datasheet(const Figure& figure) { return std::holds_alternative<Sourced Chip::*>(figure.member); }

// Returns the figure or switch of a chip that a member of either part names. `Held` is Chip or const Chip.
template <class Held, class Value>
auto& part_of(Held& chip, Value Chip::*member) {
  return chip.*member;
}
template <class Held, class Value>
auto& part_of(Held& chip, Value ChipSoftware::*member) {
  return chip.software.*member;
}

void read_value(const Yaml& node, const Figure& figure, FigureUse use, Sourced& value) {
  const Sign sign = figure.absent == Absent::refused ? Sign::positive : Sign::not_negative;
  if (const auto dimension = figure.dimension()) {
    value = read_sourced(node, *dimension, sign);
    return;
  }
  const Kind& kind = std::get<Kind>(figure.unit);
  const bool is_ratio = use == FigureUse::factors && kind.most <= kReached.most;
  const Kind& limit = is_ratio ? kFactor : kind;
  const std::string hint =
      fmt::format("`{}` is {}: at most {}", figure.key, limit.what, format_exact(limit.most));
  value = read_sourced(node, NumberBounds{.sign = sign, .most = limit.most, .hint = hint});
}
void read_value(const Yaml& node, const Figure&, FigureUse, SourcedSwitch& value) {
  value = read_switch(node);
}

void read_figure(const Yaml& node, const Figure& figure, FigureUse use, Chip& chip) {
  std::visit([&](auto member) { read_value(node, figure, use, part_of(chip, member)); }, figure.member);
}

std::string print_value(const Figure& figure, const Sourced& value) {
  return print(value, figure.dimension());
}
std::string print_value(const Figure&, const SourcedSwitch& value) { return print(value); }

// Prints one line, or nothing.
std::string print_figure(const Figure& figure, const Chip& chip, const std::string& indent) {
  return std::visit(
      [&](auto member) -> std::string {
        const auto& value = part_of(chip, member);
        if (value != std::remove_cvref_t<decltype(value)>{})
          return fmt::format("{}{}: {}\n", indent, figure.key, print_value(figure, value));
        return figure.absent == Absent::unknown ? fmt::format("{}{}: null  # unknown\n", indent, figure.key)
                                                : "";
      },
      figure.member);
}

void read_peaks(const Yaml& node, Chip& chip) {
  std::vector<std::string> formats;
  for (Format format : kFormats) formats.emplace_back(name_of(format));
  const Fields peaks(node, "`peak`", formats);
  for (Format format : kFormats)
    if (const Yaml value = peaks.find(name_of(format)))
      chip.peak_flops[format] = read_sourced(value, Dimension::flops, Sign::positive);
}

}  // namespace

std::vector<std::string> datasheet_keys() {
  std::vector<std::string> keys = {"name", "vendor", "family", "kind", "usual_node", "peak"};
  for (const Figure& figure : figures())
    if (in_datasheet(figure)) keys.push_back(figure.key);
  return keys;
}

std::vector<std::string> software_keys() {
  std::vector<std::string> keys = {"kernels", "layers"};
  for (const Figure& figure : figures())
    if (!in_datasheet(figure)) keys.push_back(figure.key);
  return keys;
}

Chip read_chip(const Yaml& node, const std::string& default_name) {
  std::vector<std::string> keys = datasheet_keys();
  for (const std::string& key : software_keys()) keys.push_back(key);
  const Fields fields(node, "a chip", keys);
  Chip chip;
  const Yaml name = fields.find("name");
  chip.name = name ? to_text(name) : default_name;
  chip.vendor = to_text(fields.need("vendor"));
  if (const Yaml family = fields.find("family")) chip.family = to_text(family);
  if (const Yaml usual = fields.find("usual_node")) chip.usual_node = to_text(usual);
  chip.kind = to_choice(fields.need("kind"), {"gpu", "cpu", "tpu", "npu"});
  read_peaks(fields.need("peak"), chip);
  for (const Figure& figure : figures()) {
    const Yaml value = figure.absent == Absent::refused ? fields.need(figure.key) : fields.find(figure.key);
    if (value) read_figure(value, figure, FigureUse::own, chip);
  }
  if (const Yaml kernels = fields.find("kernels")) chip.software.kernels = read_kernel_rates(kernels);
  if (const Yaml layers = fields.find("layers")) chip.software.layers = read_layers(layers);
  const double slowdown = chip.software.overlap_slowdown.value;
  if (slowdown > 0 && slowdown < 1)
    throw Refusal(Exit::usage, "out-of-bounds", fields.where("overlap_slowdown"),
                  fmt::format("`overlap_slowdown` is {}, less than 1", slowdown),
                  "it is the factor on a compute's time while communication runs");
  return chip;
}

Chip load_chip(const std::string& path_or_name) {
  const std::string path = find_file(path_or_name, ".", "platforms/chips", ".yaml", {});
  return telling_all_refusals([&] { return read_chip(read_yaml(path), stem_of(path)); });
}

void replace_figures(const Yaml& node, Chip& chip, FigureUse use) {
  std::vector<std::string> keys;
  for (const Figure& figure : figures()) keys.push_back(figure.key);
  const Fields fields(node, "figures of a chip", keys);
  for (const Figure& figure : figures())
    if (const Yaml value = fields.find(figure.key)) read_figure(value, figure, use, chip);
}

std::string print(const Chip& chip, const std::string& indent) {
  const std::string family =
      chip.family.empty() ? "" : fmt::format("{}family: {}\n", indent, quote(chip.family));
  const std::string usual =
      chip.usual_node.empty() ? "" : fmt::format("{}usual_node: {}\n", indent, quote(chip.usual_node));
  std::string text =
      fmt::format("{0}name: {1}\n{0}vendor: {2}\n{3}{0}kind: {4}\n{6}{0}peak:{5}\n", indent, quote(chip.name),
                  quote(chip.vendor), family, chip.kind, chip.peak_flops.empty() ? " {}" : "", usual);
  for (const auto& [format, peak] : chip.peak_flops)
    text += fmt::format("{}  {}: {}\n", indent, name_of(format), print(peak, Dimension::flops));
  for (const Figure& figure : figures()) text += print_figure(figure, chip, indent);
  return text + print(chip.software.kernels, indent) + print(chip.software.layers, indent);
}

std::vector<ChipFigure> list_figures(const Chip& chip) {
  const auto words_of = [](double value, std::optional<Dimension> dimension) {
    return dimension ? format_exact(value, *dimension) : fmt::format("{:.6g}", value);
  };
  std::vector<ChipFigure> listed;
  for (const auto& [format, peak] : chip.peak_flops)
    listed.push_back(
        {fmt::format("peak {}", name_of(format)), words_of(peak.value, Dimension::flops), peak.source});
  for (const Figure& figure : figures())
    std::visit(
        [&](auto member) {
          const auto& given = part_of(chip, member);
          if (given == std::remove_cvref_t<decltype(given)>{}) return;
          listed.push_back({figure.key, words_of(given.value, figure.dimension()), given.source});
        },
        figure.member);
  if (!chip.software.kernels.source.empty())
    listed.push_back({"kernels", "speeds by kind", chip.software.kernels.source});
  if (!chip.software.layers.source.empty())
    listed.push_back({"layers", "measured seconds", chip.software.layers.source});
  return listed;
}

}  // namespace motley
