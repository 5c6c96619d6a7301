#include "models/plan/target_refusal.hpp"

#include <fmt/format.h>

#include "models/base/refusal.hpp"
#include "models/base/units.hpp"

namespace motley {

void refuse_target(const Plan& plan) {
  const Goal& goal = plan.goal;
  const Verdict& best = plan.verdict;
  std::string misses;
  if (best.step_s > goal.most_step_s)
    misses = fmt::format("a step takes {}, the deadline leaves {}", format_seconds(best.step_s),
                         format_seconds(goal.most_step_s));
  const double usd = best.bill.usd.value_or(0);
  if (usd > goal.most_step_usd)
    misses += fmt::format("{}a step costs {:.4g} USD, the budget leaves {:.4g} USD",
                          misses.empty() ? "" : "; ", usd, goal.most_step_usd);
  const bool is_proved = plan.value_bound == Goal::kNone;
  throw Refusal(
      Exit::infeasible, "misses-target", {},
      fmt::format(
          "of {} strategies that were simulated none meets the targets; by the best, {}: {:.3g} times "
          "as much",
          plan.judged, misses, goal.excess(best)),
      is_proved ? "no strategy meets them on these chips: even if all compute all the time they are too slow "
                  "or too dear; take more chips, cheaper ones, or other targets"
                : fmt::format("no bound proves that there is none; a step takes at least {} at any price, so "
                              "more time, a larger budget or more evaluations may help",
                              format_seconds(plan.bound_s)));
}

}  // namespace motley
