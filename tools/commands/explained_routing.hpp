// Whether the way in which real tokens chose experts explains why a prediction is off: the expert_skew that predicts
// as much, and the step that it predicts. Read next: models/program/expert_load.hpp, tools/commands/rehearse.cpp.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "models/plan/prepare.hpp"
#include "models/program/expert_load.hpp"

namespace motley {

struct ExplainedRouting {
  bool by_rank = true;  // false: no ranks divide experts; the load is the busiest expert's
  double busiest_rank = 1, busiest_expert = 1;  // measured: means of steps
  double expected = 1;                          // what the scenario's own expert_skew predicts of that load
  SkewOfLoad fitted;                            // of that load; the skew is rounded as a person writes it
  std::optional<double> predicted_s;            // the step with this skew; nothing: it was refused
  std::string refused;                          // why
  // The step with the load that was measured, in proportion to the two predictions; nothing: a skew reaches that load,
  // or none comes nearer than the scenario's own, or no ranks divide experts.
  // Assumes: a step grows evenly with the load, as kernels do that are priced by measured speeds.
  std::optional<double> at_load_s;

  double load() const { return by_rank ? busiest_rank : busiest_expert; }
};

// Nothing: the skew changes no time. `skipped`: steps that warmed up. `predicted_s`: the prediction of the scenario as
// it is. `predict`: predicts another.
std::optional<ExplainedRouting> explain_routing(const MeasuredRouting& routing, std::size_t skipped,
                                                const Prepared& prepared, double predicted_s,
                                                const std::function<double(const Prepared&)>& predict);

}  // namespace motley
