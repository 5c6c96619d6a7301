// Plans of published jobs beside the layouts that people ran: is the plan, simulated, at least as fast as the fastest
// of them, simulated too? It tests the search alone: both sides are predictions. Read next:
// models/published/layout_choices.hpp, models/plan/planner.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace motley {

struct PlannedJob {
  std::string set, model, run;  // run: the id of the layout that the plan is held against
  std::int64_t chips = 0;
  std::size_t layouts = 0;  // that were published
  // Of the layout that is predicted fastest, of those that fit their chips if any does.
  double published_s = 0;
  double planned_s = 0;  // 0: no plan
  double bound_s = 0;
  bool ended_early = false;  // the search ended as the plan was no slower; going on might have made it faster
  std::string degrees = {};  // of the plan
  std::string refused = {};  // why there is no plan
  // Bytes that the published layout needs beyond its fullest chip; 0: it fits. Few sources print what was recomputed or
  // sharded, and what a plan must spare such a layout need not.
  double short_bytes = 0;
  bool fits() const { return short_bytes <= 0; }
  double ratio() const { return planned_s / published_s; }
};

struct PlannedSummary {
  std::size_t jobs = 0;
  // Of the jobs whose published layout fits its chips.
  std::size_t no_slower = 0, without_plan = 0;
  double mean_ratio = 0, worst_ratio = 0;  // of those that have a plan
  // Jobs whose published layout does not fit as it is read, and the plans of those that are no slower all the same.
  std::size_t not_fitting = 0, no_slower_not_fitting = 0;
};
PlannedSummary summarise(const std::vector<PlannedJob>& jobs);

std::string to_json(const std::vector<PlannedJob>& jobs);  // schema "motley.validate-plans/1"
std::string to_text(const std::vector<PlannedJob>& jobs, bool rows);

}  // namespace motley
