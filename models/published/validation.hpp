// Predictions beside measurements: the error of each run, and the size of errors by set, chip and size of the job.
// Nothing is predicted here. Read next: tools/commands/validate.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace motley {

// The predicted seconds of a step. 80 % of the runs with such predictions lay between `low_s` and `high_s`.
struct Prediction {
  double seconds = 0, low_s = 0, high_s = 0;
};

struct RunOutcome {
  std::string id, set, accelerator, model;
  std::int64_t chips = 0;
  double measured_s = 0;
  // Made with the figures of the run's software; if the run took part in their fit, with those of a fit that left out
  // all runs of its model's size.
  Prediction predicted;
  // Made with figures fitted without any run of the set. Nothing: there is no such fit.
  std::optional<Prediction> unseen;
  std::optional<double> measured_bytes,
      predicted_bytes;      // of the fullest chip; nothing: not printed, or unknown
  bool experts = false;     // the model has experts
  bool fits = true;         // false: the prediction says that it does not fit, although it ran
  std::string passed_over;  // the reason; empty: the run was predicted

  double error_pct() const { return 100 * (predicted.seconds / measured_s - 1); }
};

// Size of the absolute errors of some runs, in percent; `bias_pct` is the mean of the signed errors.
struct ErrorFigures {
  std::int64_t rows = 0;
  double mean_abs_pct = 0, median_abs_pct = 0, worst_abs_pct = 0, bias_pct = 0;
  double held_pct = 0;  // share of the rows whose measured seconds lie in their interval
  std::string worst_id;
};
struct ErrorSummary {
  std::string name;  // name of the set, chip, or size of the job
  ErrorFigures calibrated, unseen;
  // Errors of the rows whose models have no experts. Nothing: there are no models with experts.
  std::optional<ErrorFigures> dense, dense_unseen;
  std::int64_t memory_rows = 0, infeasible = 0;  // rows that print a peak; rows predicted not to fit
  double memory_mean_abs_pct = 0;
  std::vector<std::pair<std::string, std::int64_t>> passed_over;  // reasons, and the number of rows for each
};
enum class SummaryBy : std::uint8_t { set, chip, scale };
// Summaries in the order in which their names first occur in the table; by scale from the smallest jobs to the
// largest.
std::vector<ErrorSummary> summarise(const std::vector<RunOutcome>& outcomes, SummaryBy by = SummaryBy::set);

std::string to_json(const std::vector<RunOutcome>& outcomes);  // schema "motley.validate/1"
// `rows`: a table of all runs precedes the summary.
std::string to_text(const std::vector<RunOutcome>& outcomes, bool rows);

}  // namespace motley
