#include "tools/fit/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "models/published/prediction_errors.hpp"

namespace motley::fit {
namespace {

// The runs have determined a figure whose spread is less than this share of its prior's spread.
constexpr double kMoved = 0.7;
constexpr std::size_t kEnoughRuns = 10, kEnoughSizes = 3;

std::string held_text(double held, const char* groups) {
  return fmt::format("each predicted without those of its own; made of the other {} it held {:.0f} %", groups,
                     100 * held);
}

std::string joined(const std::set<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

std::string interval_text(const Bounds& bounds, const std::string& source) {
  return fmt::format("{{low: {:.3g}, high: {:.3g}, source: {}}}\n", bounds.low, bounds.high, quote(source));
}

}  // namespace

// The places of those runs, without those that another one covers.
std::vector<MeasuredOn> places_of(const std::vector<FitRun>& runs, const std::string& software) {
  std::vector<MeasuredOn> places;
  for (const FitRun& run : runs) {
    if (run.software != software) continue;
    const auto alike = std::find_if(places.begin(), places.end(), [&](const MeasuredOn& each) {
      return each.chip == run.place.chip && each.nic == run.place.nic &&
             each.bandwidth_a_chip == run.place.bandwidth_a_chip &&
             each.chips_per_node == run.place.chips_per_node;
    });
    if (alike == places.end())
      places.push_back(run.place);
    else
      alike->chips = std::max(alike->chips, run.place.chips);
  }
  std::erase_if(places, [&](const MeasuredOn& each) {
    return each.bandwidth_a_chip == 0 &&
           std::any_of(places.begin(), places.end(), [&](const MeasuredOn& other) {
             return other != each && other.chip == each.chip && other.chips_per_node >= each.chips_per_node &&
                    (other.bandwidth_a_chip > 0 || other.chips_per_node > each.chips_per_node);
           });
  });
  std::sort(places.begin(), places.end(), [](const MeasuredOn& a, const MeasuredOn& b) {
    return std::tie(a.chip, a.chips, a.chips_per_node, a.bandwidth_a_chip) <
           std::tie(b.chip, b.chips, b.chips_per_node, b.bandwidth_a_chip);
  });
  return places;
}

ErrorTable table_of(const std::vector<double>& errors, const std::vector<std::string>& sets) {
  std::map<std::string, std::vector<double>> by_set;
  for (std::size_t i = 0; i < errors.size(); ++i)
    by_set[sets.at(i)].push_back(100 * std::abs(std::expm1(errors[i])));
  ErrorTable table;
  std::vector<double> means;
  for (const auto& [set, set_errors] : by_set) {
    table.sets.push_back({set, set_errors.size(), mean_of(set_errors), median_of(set_errors),
                          *std::max_element(set_errors.begin(), set_errors.end())});
    means.push_back(table.sets.back().mean_pct);
  }
  table.mean_of_sets_pct = mean_of(means);
  table.median_of_sets_pct = median_of(means);
  return table;
}

std::string to_text(const ErrorTable& table) {
  std::string text;
  for (const SetErrors& each : table.sets)
    text += fmt::format("  {:8} {:4} rows  mean {:5.1f}  median {:5.1f}  worst {:5.1f} %\n", each.set,
                        each.rows, each.mean_pct, each.median_pct, each.worst_pct);
  return text + fmt::format("  mean of sets {:.1f} %, median {:.1f} %\n", table.mean_of_sets_pct,
                            table.median_of_sets_pct);
}

std::string to_json(const ErrorTable& table) {
  nlohmann::ordered_json json;
  for (const SetErrors& each : table.sets)
    json["sets"].push_back({{"set", each.set},
                            {"rows", each.rows},
                            {"mean_abs_pct", each.mean_pct},
                            {"median_abs_pct", each.median_pct},
                            {"worst_abs_pct", each.worst_pct}});
  json["mean_of_sets_pct"] = table.mean_of_sets_pct;
  json["median_of_sets_pct"] = table.median_of_sets_pct;
  return json.dump();
}

std::string to_json(const Figures& figures, const Fit& fit) {
  auto json = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < figures.names().size(); ++i) {
    const auto at = static_cast<Eigen::Index>(i);
    if (!fit.moves(at)) continue;
    const FigureName& name = figures.names()[i];
    nlohmann::ordered_json each;
    each["software"] = name.software;
    if (!name.chip.empty()) each["chip"] = name.chip;
    each["kind"] = name.kind;
    each["value"] = std::exp(fit.values()[at]);
    each["spread"] = fit.spread()[at];
    json.push_back(std::move(each));
  }
  return json.dump();
}

Written interval_of_software(const std::vector<Ratio>& own, const std::vector<Ratio>& all,
                             const std::string& month) {
  std::set<std::string> sizes;
  for (const Ratio& each : own) sizes.insert(each.group);
  if (own.size() >= kEnoughRuns && sizes.size() >= kEnoughSizes) {
    const HeldBounds own_bounds = interval_of(own);
    return {own_bounds.bounds,
            fmt::format("{} runs of it, {}, {}", own.size(), held_text(own_bounds.held, "sizes"), month)};
  }
  const HeldBounds of_any = interval_of(all);
  Written interval{of_any.bounds, fmt::format("{} runs of any software, {}, {}", all.size(),
                                              held_text(of_any.held, "sizes"), month)};
  const Bounds few = bounds_of(own, 0.1);
  if (few.low < interval.bounds.low || few.high > interval.bounds.high)
    interval.source = fmt::format("{} runs of it and {}", own.size(), interval.source);
  interval.bounds = {std::min(interval.bounds.low, few.low), std::max(interval.bounds.high, few.high)};
  return interval;
}

std::string software_file(const Figures& figures, const Fit& fit, const std::string& software,
                          const std::vector<FitRun>& runs, const Written& interval,
                          const std::string& month) {
  std::set<std::string> sets;
  for (const FitRun& run : runs)
    if (run.software == software) sets.insert(run.set);
  const auto source_of = [&](Eigen::Index i) {
    const FigurePlan& plan = figures.plan().figure(figures.names().at(static_cast<std::size_t>(i)).kind);
    const char* const moved =
        fit.spread()[i] < kMoved * plan.spread ? "fitted" : "prior, hardly moved by the runs";
    return fmt::format("{}: {} of published runs, {}; +-{:.0f} %", moved, joined(sets), month,
                       100 * fit.spread()[i]);
  };
  return fmt::format(
             "# {}: what this software makes of chips and networks. Written by tools/fit-published.\n",
             software) +
         "interval: " + interval_text(interval.bounds, interval.source) + "measured:\n" +
         print(places_of(runs, software)) + figures.text(software, fit.values(), source_of);
}

std::string left_out_text(const Figures& figures, const LeftOut& left_out, const std::string& month) {
  std::string text = fmt::format(
      "# Of tools/fit-published, {}: what `motley validate` predicts the runs with that it left out.\n",
      month);
  if (left_out.set.empty())
    text += fmt::format("runs: [{}]\n", fmt::join(left_out.ids, ",\n  "));
  else
    text += "set: " + left_out.set + "\n";
  text += "software:\n";
  for (const std::string& software : left_out.software)
    text += "  " + software + ":\n" +
            figures.text(
                software, left_out.values, [](Eigen::Index) { return "fitted without those runs"; }, "    ");
  return text;
}

std::string with_interval(const std::string& text, const std::string& key, const std::vector<Ratio>& ratios,
                          const std::string& told, const Bounds& at_least) {
  const HeldBounds interval = interval_of(ratios);
  const Bounds bounds = {std::min(interval.bounds.low, at_least.low),
                         std::max(interval.bounds.high, at_least.high)};
  std::istringstream lines(text);
  std::string kept, line;
  while (std::getline(lines, line))
    if (!line.starts_with(key + ":")) kept += line + "\n";
  return kept + key + ": " +
         interval_text(bounds,
                       fmt::format("{} runs of {}; made of the other sets it held {:.0f} %, bias {:+.1f} %",
                                   ratios.size(), told, 100 * interval.held, 100 * bias_of(ratios)));
}

double bias_of(const std::vector<Ratio>& ratios) {
  std::map<std::string, std::vector<double>> by_set;
  for (const Ratio& each : ratios) by_set[each.set].push_back(-std::log(each.value));
  std::vector<double> means;
  for (const auto& [set, logs] : by_set) means.push_back(mean_of(logs));
  return mean_of(means);
}

std::string new_folder_in(const std::string& parent) {
  std::string name = parent + "/motley-fit-XXXXXX";
  if (mkdtemp(name.data()) == nullptr)
    throw Refusal(Exit::usage, "unwritable-file", {.file = parent}, "no folder can be made in it",
                  "TMPDIR says where results are kept; may you write there?");
  return name;
}

void write_files(const Files& files, const std::string& folder) {
  for (const auto& [name, text] : files) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file || error)
      throw Refusal(Exit::usage, "unwritable-file", {.file = path.string()}, "cannot be written",
                    "does its folder exist, and may you write there?");
  }
}

}  // namespace motley::fit
