// Predictions beside what was measured: the error of each run and, by set, how large errors are. It predicts nothing
// itself. Read next: tools/command_validate.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace motley {

struct RunOutcome {
  std::string id, set, accelerator, model;
  std::int64_t chips = 0;
  double measured_s = 0, predicted_s = 0;                 // a step
  std::optional<double> measured_bytes, predicted_bytes;  // of the fullest chip
  bool fits = true;                                       // by the prediction: it did fit, it ran
  std::string passed_over;                                // the reason; empty: it was predicted

  double error_pct() const { return 100 * (predicted_s / measured_s - 1); }
  std::optional<double> memory_error_pct() const;
};

// Of the absolute errors of one set, in percent; `bias`: the mean of the signed ones.
struct ErrorSummary {
  std::string set;
  std::int64_t rows = 0;
  double mean_abs_pct = 0, median_abs_pct = 0, worst_abs_pct = 0, bias_pct = 0;
  std::string worst_id;
  std::int64_t memory_rows = 0, infeasible = 0;  // rows that print a peak; rows said not to fit
  double memory_mean_abs_pct = 0;
  std::vector<std::pair<std::string, std::int64_t>> passed_over;  // reasons, and how many rows
};
// In the order in which sets first stand in the table.
std::vector<ErrorSummary> summarise(const std::vector<RunOutcome>& outcomes);

std::string to_json(const std::vector<RunOutcome>& outcomes);  // schema "motley.validate/1"
// `rows`: each run too, not the summary alone.
std::string to_text(const std::vector<RunOutcome>& outcomes, bool rows);

}  // namespace motley
