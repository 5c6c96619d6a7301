#include "models/published/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/published/prediction_errors.hpp"

namespace motley {
namespace {

// Sums up the errors of some runs in one regime.
class Tally {
 public:
  void add(const RunOutcome& run, const Prediction& predicted) {
    errors_.add(run.id, predicted.seconds, run.measured_s);
    if (predicted.low_s <= run.measured_s && run.measured_s <= predicted.high_s) held_ += 1;
  }
  ErrorFigures figures() const {
    ErrorFigures figures;
    figures.rows = static_cast<std::int64_t>(errors_.count());
    if (figures.rows == 0) return figures;
    figures.mean_abs_pct = errors_.mean();
    figures.median_abs_pct = errors_.median();
    figures.worst_abs_pct = std::abs(errors_.worst());
    figures.bias_pct = errors_.bias();
    figures.held_pct = 100 * held_ / static_cast<double>(figures.rows);
    figures.worst_id = errors_.worst_id();
    return figures;
  }

 private:
  Errors errors_;
  double held_ = 0;
};

ErrorSummary summary_of(const std::string& name, const std::vector<const RunOutcome*>& runs) {
  ErrorSummary summary;
  summary.name = name;
  Tally calibrated, unseen, dense, dense_unseen;
  Errors memory;
  std::map<std::string, std::int64_t> reasons;
  for (const RunOutcome* run : runs) {
    if (!run->passed_over.empty()) {
      ++reasons[run->passed_over];
      continue;
    }
    calibrated.add(*run, run->predicted);
    if (run->unseen) unseen.add(*run, *run->unseen);
    if (!run->experts) dense.add(*run, run->predicted);
    if (!run->experts && run->unseen) dense_unseen.add(*run, *run->unseen);
    if (run->measured_bytes && run->predicted_bytes)
      memory.add(run->id, *run->predicted_bytes, *run->measured_bytes);
    summary.infeasible += run->fits ? 0 : 1;
  }
  summary.calibrated = calibrated.figures();
  summary.unseen = unseen.figures();
  if (const ErrorFigures of_dense = dense.figures();
      of_dense.rows > 0 && of_dense.rows < summary.calibrated.rows) {
    summary.dense = of_dense;
    summary.dense_unseen = dense_unseen.figures();
  }
  summary.memory_rows = static_cast<std::int64_t>(memory.count());
  summary.memory_mean_abs_pct = memory.mean();
  summary.passed_over.assign(reasons.begin(), reasons.end());
  return summary;
}

// Powers of eight: within a node, a few nodes, a pod, more.
constexpr std::array<std::int64_t, 4> kScales = {8, 64, 512, 4096};

std::size_t scale_of(std::int64_t chips) {
  std::size_t i = 0;
  while (i < kScales.size() && chips > kScales[i]) ++i;
  return i;
}
std::string name_of_scale(std::size_t i) {
  if (i == kScales.size()) return fmt::format("more than {}", kScales.back());
  return i == 0 ? fmt::format("1 to {}", kScales[0])
                : fmt::format("{} to {}", kScales[i - 1] + 1, kScales[i]);
}

using Json = nlohmann::ordered_json;

Json row_of(const RunOutcome& run) {
  Json row = {{"id", run.id},
              {"set", run.set},
              {"accelerator", run.accelerator},
              {"model", run.model},
              {"chips", run.chips}};
  if (!run.passed_over.empty()) {
    row["skipped"] = run.passed_over;
    return row;
  }
  row["measured_s"] = run.measured_s;
  row["predicted_s"] = run.predicted.seconds;
  row["low_s"] = run.predicted.low_s;
  row["high_s"] = run.predicted.high_s;
  row["error_pct"] = run.error_pct();
  if (run.unseen)
    row["unseen"] = {{"predicted_s", run.unseen->seconds},
                     {"low_s", run.unseen->low_s},
                     {"high_s", run.unseen->high_s},
                     {"error_pct", 100 * (run.unseen->seconds / run.measured_s - 1)}};
  if (run.measured_bytes) row["measured_bytes"] = *run.measured_bytes;
  if (run.predicted_bytes) row["predicted_bytes"] = *run.predicted_bytes;
  row["fits"] = run.fits;
  row["experts"] = run.experts;
  return row;
}

Json json_of(const ErrorFigures& errors) {
  return {{"rows", errors.rows},
          {"mean_abs_pct", errors.mean_abs_pct},
          {"median_abs_pct", errors.median_abs_pct},
          {"worst_abs_pct", errors.worst_abs_pct},
          {"bias_pct", errors.bias_pct},
          {"worst_id", errors.worst_id},
          {"held_by_interval_pct", errors.held_pct}};
}

Json json_of(const std::vector<ErrorSummary>& summaries, const char* by) {
  Json list = Json::array();
  for (const ErrorSummary& summary : summaries) {
    Json entry = {{by, summary.name}};
    entry.update(json_of(summary.calibrated));
    entry["memory_rows"] = summary.memory_rows;
    entry["memory_mean_abs_pct"] = summary.memory_mean_abs_pct;
    entry["infeasible"] = summary.infeasible;
    entry["skipped"] = Json::array();
    for (const auto& [reason, count] : summary.passed_over)
      entry["skipped"].push_back({{"reason", reason}, {"rows", count}});
    if (summary.unseen.rows > 0) entry["unseen"] = json_of(summary.unseen);
    if (summary.dense) {
      entry["dense"] = json_of(*summary.dense);
      if (summary.dense_unseen->rows > 0) entry["dense"]["unseen"] = json_of(*summary.dense_unseen);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::string rows_table(const std::vector<RunOutcome>& outcomes) {
  Table table("llrrrlrr",
              {"run", "model", "chips", "measured s", "predicted s", "interval", "error %", "unseen %"});
  for (const RunOutcome& run : outcomes)
    if (run.passed_over.empty())
      table.add({run.id, run.model, std::to_string(run.chips), fmt::format("{:.4g}", run.measured_s),
                 fmt::format("{:.4g}", run.predicted.seconds),
                 fmt::format("{:.4g} to {:.4g}", run.predicted.low_s, run.predicted.high_s),
                 fmt::format("{:+.1f}", run.error_pct()),
                 run.unseen ? fmt::format("{:+.1f}", 100 * (run.unseen->seconds / run.measured_s - 1)) : ""});
  return table.print() + "\n";
}

std::vector<std::string> cells(const ErrorFigures& errors) {
  if (errors.rows == 0) return {"", "", "", "", ""};
  return {percent(errors.mean_abs_pct), percent(errors.median_abs_pct), percent(errors.worst_abs_pct),
          fmt::format("{:+.1f}", errors.bias_pct), fmt::format("{:.0f}", errors.held_pct)};
}

std::string summary_table(const std::vector<ErrorSummary>& summaries, const char* by) {
  Table table("lrrrrrrlrrrrrrr",
              {by, "rows", "mean", "median", "worst", "bias", "held", "worst run", "unseen: mean", "median",
               "worst", "bias", "held", "memory", "passed over"});
  for (const ErrorSummary& summary : summaries) {
    if (summary.calibrated.rows == 0) continue;
    std::int64_t passed = 0;
    for (const auto& [reason, count] : summary.passed_over) passed += count;
    std::vector<std::string> row = {summary.name, std::to_string(summary.calibrated.rows)};
    for (std::string& cell : cells(summary.calibrated)) row.push_back(std::move(cell));
    row.push_back(summary.calibrated.worst_id);
    for (std::string& cell : cells(summary.unseen)) row.push_back(std::move(cell));
    row.push_back(summary.memory_rows > 0
                      ? fmt::format("{} of {}", percent(summary.memory_mean_abs_pct), summary.memory_rows)
                      : "");
    row.push_back(std::to_string(passed));
    table.add(std::move(row));
    if (!summary.dense) continue;
    row = {"  dense", std::to_string(summary.dense->rows)};
    for (std::string& cell : cells(*summary.dense)) row.push_back(std::move(cell));
    row.push_back(summary.dense->worst_id);
    for (std::string& cell : cells(*summary.dense_unseen)) row.push_back(std::move(cell));
    row.insert(row.end(), {"", ""});
    table.add(std::move(row));
  }
  return table.print();
}

// The line over all sets, which count equally.
std::string over_sets(const std::vector<ErrorSummary>& sets) {
  std::vector<double> means, medians, unseen_means, unseen_medians;
  double held = 0, unseen_held = 0, rows = 0, unseen_rows = 0;
  for (const ErrorSummary& summary : sets) {
    const auto take = [](const ErrorFigures& errors, std::vector<double>& all, std::vector<double>& middles,
                         double& within, double& count) {
      if (errors.rows == 0) return;
      all.push_back(errors.mean_abs_pct);
      middles.push_back(errors.median_abs_pct);
      within += errors.held_pct * static_cast<double>(errors.rows);
      count += static_cast<double>(errors.rows);
    };
    take(summary.calibrated, means, medians, held, rows);
    take(summary.unseen, unseen_means, unseen_medians, unseen_held, unseen_rows);
  }
  std::string text;
  if (rows > 0)
    text += fmt::format(
        "calibrated: {} sets, mean of their means {} %, of their medians {} %; intervals hold {:.0f} % of {} "
        "rows\n",
        means.size(), percent(mean_of(means)), percent(mean_of(medians)), held / rows, rows);
  if (unseen_rows > 0)
    text += fmt::format(
        "unseen:     {} sets, median of their means {} %, of their medians {} %; intervals hold {:.0f} % of "
        "{} rows\n",
        unseen_means.size(), percent(median_of(unseen_means)), percent(median_of(unseen_medians)),
        unseen_held / unseen_rows, unseen_rows);
  return text;
}

}  // namespace

std::vector<ErrorSummary> summarise(const std::vector<RunOutcome>& outcomes, SummaryBy by) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<const RunOutcome*>> by_name;
  if (by == SummaryBy::scale)
    for (std::size_t i = 0; i <= kScales.size(); ++i) names.push_back(name_of_scale(i));
  for (const RunOutcome& run : outcomes) {
    if (by != SummaryBy::set && !run.passed_over.empty()) continue;
    const std::string name = by == SummaryBy::set    ? run.set
                             : by == SummaryBy::chip ? run.accelerator
                                                     : name_of_scale(scale_of(run.chips));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    by_name[name].push_back(&run);
  }
  std::vector<ErrorSummary> summaries;
  for (const std::string& name : names)
    if (by_name.contains(name)) summaries.push_back(summary_of(name, by_name[name]));
  return summaries;
}

std::string to_json(const std::vector<RunOutcome>& outcomes) {
  Json rows = Json::array();
  for (const RunOutcome& run : outcomes) rows.push_back(row_of(run));
  const Json whole = {{"schema", "motley.validate/1"},
                      {"summary", json_of(summarise(outcomes), "set")},
                      {"by_chip", json_of(summarise(outcomes, SummaryBy::chip), "chip")},
                      {"by_scale", json_of(summarise(outcomes, SummaryBy::scale), "chips")},
                      {"rows", rows}};
  return json_text(whole);
}

std::string to_text(const std::vector<RunOutcome>& outcomes, bool rows) {
  std::string text = rows ? rows_table(outcomes) : "";
  const auto sets = summarise(outcomes);
  text +=
      "absolute errors of steps, in %. Runs that took part in the fit of their software: left out with all "
      "of "
      "their\nmodel's size; unseen: with all of their set. Held: by the stated intervals. Memory: of the "
      "peak.\n\n";
  text += summary_table(sets, "set") + "\n" + over_sets(sets) + "\n";
  text += summary_table(summarise(outcomes, SummaryBy::chip), "chip") + "\n";
  text += summary_table(summarise(outcomes, SummaryBy::scale), "chips");
  std::map<std::string, std::int64_t> reasons;
  for (const ErrorSummary& summary : sets)
    for (const auto& [reason, count] : summary.passed_over) reasons[reason] += count;
  if (reasons.empty()) return text;
  text += "\nrows passed over:\n";
  for (const auto& [reason, count] : reasons) text += fmt::format("  {:>5}  {}\n", count, reason);
  return text;
}

}  // namespace motley
