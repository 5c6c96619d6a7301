#include "models/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "models/table.hpp"
#include "models/units.hpp"

namespace motley {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

ErrorSummary summary_of(const std::string& set, const std::vector<const RunOutcome*>& runs) {
  ErrorSummary made;
  made.set = set;
  std::vector<double> errors, sizes, memory;
  std::map<std::string, std::int64_t> reasons;
  for (const RunOutcome* run : runs) {
    if (!run->passed_over.empty()) {
      ++reasons[run->passed_over];
      continue;
    }
    errors.push_back(run->error_pct());
    sizes.push_back(std::abs(run->error_pct()));
    if (sizes.back() > made.worst_abs_pct) {
      made.worst_abs_pct = sizes.back();
      made.worst_id = run->id;
    }
    if (const auto error = run->memory_error_pct()) memory.push_back(std::abs(*error));
    made.infeasible += run->fits ? 0 : 1;
  }
  made.rows = static_cast<std::int64_t>(errors.size());
  made.mean_abs_pct = mean(sizes);
  made.median_abs_pct = median(sizes);
  made.bias_pct = mean(errors);
  made.memory_rows = static_cast<std::int64_t>(memory.size());
  made.memory_mean_abs_pct = mean(memory);
  made.passed_over.assign(reasons.begin(), reasons.end());
  return made;
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
  row["predicted_s"] = run.predicted_s;
  row["error_pct"] = run.error_pct();
  if (run.measured_bytes) row["measured_bytes"] = *run.measured_bytes;
  if (run.predicted_bytes) row["predicted_bytes"] = *run.predicted_bytes;
  row["fits"] = run.fits;
  return row;
}

std::string percent(double value) { return fmt::format("{:.1f}", value); }

std::string rows_table(const std::vector<RunOutcome>& outcomes) {
  Table table("llrrrr", {"run", "model", "chips", "measured s", "predicted s", "error %"});
  for (const RunOutcome& run : outcomes)
    if (run.passed_over.empty())
      table.add({run.id, run.model, std::to_string(run.chips), fmt::format("{:.4g}", run.measured_s),
                 fmt::format("{:.4g}", run.predicted_s), fmt::format("{:+.1f}", run.error_pct())});
  return table.print() + "\n";
}

}  // namespace

std::optional<double> RunOutcome::memory_error_pct() const {
  if (!measured_bytes || !predicted_bytes) return std::nullopt;
  return 100 * (*predicted_bytes / *measured_bytes - 1);
}

std::vector<ErrorSummary> summarise(const std::vector<RunOutcome>& outcomes) {
  std::vector<std::string> sets;
  std::map<std::string, std::vector<const RunOutcome*>> by_set;
  for (const RunOutcome& run : outcomes) {
    if (!by_set.contains(run.set)) sets.push_back(run.set);
    by_set[run.set].push_back(&run);
  }
  std::vector<ErrorSummary> made;
  for (const std::string& set : sets) made.push_back(summary_of(set, by_set[set]));
  return made;
}

std::string to_json(const std::vector<RunOutcome>& outcomes) {
  Json summary = Json::array(), rows = Json::array();
  for (const ErrorSummary& of : summarise(outcomes)) {
    Json skipped = Json::array();
    for (const auto& [reason, count] : of.passed_over)
      skipped.push_back({{"reason", reason}, {"rows", count}});
    summary.push_back({{"set", of.set},
                       {"rows", of.rows},
                       {"mean_abs_pct", of.mean_abs_pct},
                       {"median_abs_pct", of.median_abs_pct},
                       {"worst_abs_pct", of.worst_abs_pct},
                       {"bias_pct", of.bias_pct},
                       {"worst_id", of.worst_id},
                       {"memory_rows", of.memory_rows},
                       {"memory_mean_abs_pct", of.memory_mean_abs_pct},
                       {"infeasible", of.infeasible},
                       {"skipped", skipped}});
  }
  for (const RunOutcome& run : outcomes) rows.push_back(row_of(run));
  const Json whole = {{"schema", "motley.validate/1"}, {"summary", summary}, {"rows", rows}};
  return whole.dump(2) + "\n";
}

std::string to_text(const std::vector<RunOutcome>& outcomes, bool rows) {
  std::string text = rows ? rows_table(outcomes) : "";
  Table table("lrrrrrlrr", {"set", "rows", "mean |%|", "median", "worst", "bias", "worst run", "memory |%|",
                            "passed over"});
  double sum = 0, medians = 0;
  std::int64_t sets = 0;
  std::map<std::string, std::int64_t> reasons;
  for (const ErrorSummary& of : summarise(outcomes)) {
    std::int64_t passed = 0;
    for (const auto& [reason, count] : of.passed_over) {
      passed += count;
      reasons[reason] += count;
    }
    if (of.rows == 0) continue;
    table.add(
        {of.set, std::to_string(of.rows), percent(of.mean_abs_pct), percent(of.median_abs_pct),
         percent(of.worst_abs_pct), fmt::format("{:+.1f}", of.bias_pct), of.worst_id,
         of.memory_rows > 0 ? fmt::format("{} of {}", percent(of.memory_mean_abs_pct), of.memory_rows) : "",
         std::to_string(passed)});
    sum += of.mean_abs_pct;
    medians += of.median_abs_pct;
    ++sets;
  }
  text += table.print();
  if (sets > 0)
    text +=
        fmt::format("\nmean of {} sets: {} % mean, {} % median\n", sets,
                    percent(sum / static_cast<double>(sets)), percent(medians / static_cast<double>(sets)));
  if (reasons.empty()) return text;
  text += "\nrows passed over:\n";
  for (const auto& [reason, count] : reasons) text += fmt::format("  {:>5}  {}\n", count, reason);
  return text;
}

}  // namespace motley
