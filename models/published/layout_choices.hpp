// Which layout of a published job a planner would choose: several groups of people measured one job (the same model,
// chips, sequence, batch and precision) under several layouts, and predictions put those in an order. How much slower
// than the fastest measured one is the layout that is predicted fastest? Nothing is predicted here. Read next:
// models/published/validation.hpp, models/plan/planner.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "models/published/published_run.hpp"
#include "models/published/validation.hpp"

namespace motley {

// One way to lay out a job. Seconds are means over the runs that measured it.
struct MeasuredLayout {
  std::vector<std::string> ids;  // of its runs
  double measured_s = 0, predicted_s = 0;
  bool fits = true;  // false: the prediction says of one of its runs that it does not fit
};

struct LayoutChoice {
  std::string set, model, accelerator;
  std::int64_t chips = 0;
  // Predicted fastest first, those that are predicted not to fit last: the first is the choice.
  std::vector<MeasuredLayout> layouts;
  std::size_t fastest = 0;  // index of the layout that was measured fastest

  const MeasuredLayout& chosen() const { return layouts.front(); }
  // How much longer the chosen layout was measured to take than the fastest one, in percent.
  double regret_pct() const { return 100 * (chosen().measured_s / layouts[fastest].measured_s - 1); }
  // The mean of that over all layouts: what a choice by chance loses.
  double chance_regret_pct() const;
};

inline constexpr std::size_t kFewestLayouts = 4;  // of a job in which a choice is judged

// The jobs with at least `fewest` layouts, in the order of the table. Runs that were passed over do not count.
// `outcomes` are those of `runs`, in their order.
// Assumes: two sets never measured one job, since their software differs.
std::vector<LayoutChoice> layout_choices(const std::vector<PublishedRun>& runs,
                                         const std::vector<RunOutcome>& outcomes,
                                         std::size_t fewest = kFewestLayouts);

struct ChoiceSummary {
  std::size_t jobs = 0;
  double mean_regret_pct = 0, without_worst_pct = 0, chance_regret_pct = 0;
  double fastest_first_pct = 0, fastest_in_three_pct = 0;  // shares of the jobs
  double chance_in_three_pct = 0;                          // the same share for an order by chance
  std::size_t infeasible = 0;                              // layouts that ran and are predicted not to fit
};
ChoiceSummary summarise(const std::vector<LayoutChoice>& choices);

std::string to_json(const std::vector<LayoutChoice>& choices);  // schema "motley.validate-choices/1"
std::string to_text(const std::vector<LayoutChoice>& choices);

}  // namespace motley
