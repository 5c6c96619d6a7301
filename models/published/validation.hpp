// Predictions beside what was measured: the error of each run, and how large errors are, by set, chip and size of the
// job. It predicts nothing itself. Read next: tools/command_validate.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace motley {

// Of a step, in seconds: 80 % of what such predictions were made for lay from `low` to `high`.
struct Prediction {
  double seconds = 0, low_s = 0, high_s = 0;
};

struct RunOutcome {
  std::string id, set, accelerator, model;
  std::int64_t chips = 0;
  double measured_s = 0;
  // With the software's figures; of a run that took part in their fit, with those of a fit without its model's size.
  Prediction predicted;
  std::optional<Prediction> unseen;                       // with figures of a fit without any run of the set
  std::optional<double> measured_bytes, predicted_bytes;  // of the fullest chip
  bool experts = false;                                   // the model's
  bool fits = true;                                       // by the prediction: it did fit, it ran
  std::string passed_over;                                // the reason; empty: it was predicted

  double error_pct() const { return 100 * (predicted.seconds / measured_s - 1); }
};

// Of the absolute errors of some runs, in percent; `bias`: the mean of the signed ones.
struct ErrorFigures {
  std::int64_t rows = 0;
  double mean_abs_pct = 0, median_abs_pct = 0, worst_abs_pct = 0, bias_pct = 0;
  double held_pct = 0;  // of the rows, those that their intervals hold
  std::string worst_id;
};
struct ErrorSummary {
  std::string name;  // of the set, chip, or size of the job
  ErrorFigures calibrated, unseen;
  // Of those alone whose models have no experts, where some have.
  std::optional<ErrorFigures> dense, dense_unseen;
  std::int64_t memory_rows = 0, infeasible = 0;  // rows that print a peak; rows said not to fit
  double memory_mean_abs_pct = 0;
  std::vector<std::pair<std::string, std::int64_t>> passed_over;  // reasons, and how many rows
};
enum class SummaryBy : std::uint8_t { set, chip, scale };
// In the order in which names first stand in the table; of scale, in its own.
std::vector<ErrorSummary> summarise(const std::vector<RunOutcome>& outcomes, SummaryBy by = SummaryBy::set);

std::string to_json(const std::vector<RunOutcome>& outcomes);  // schema "motley.validate/1"
// `rows`: each run too, not the summary alone.
std::string to_text(const std::vector<RunOutcome>& outcomes, bool rows);

}  // namespace motley
