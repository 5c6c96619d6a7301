#include "models/plan/goal_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/base/table.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

nlohmann::ordered_json known(const std::optional<double>& value) {
  return value && *value < Goal::kNone ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

double tokens_of(const PlanReport& report) {
  return report.request.tokens > 0 ? report.request.tokens : report.plan.job.train.tokens;
}

// Steps that are paid for and waited for, those that are lost among them.
double steps_taken(const PlanReport& report) {
  const Job& job = report.plan.job;
  return static_cast<double>(steps_of_run(job, tokens_of(report))) / job.train.goodput;
}

std::string at_most(double target, const std::string& text) {
  return target > 0 ? fmt::format(" of {}", text) : "";
}

}  // namespace

std::string format_value(PlanObjective objective, double value) {
  switch (objective) {
    case PlanObjective::time:
      return format_seconds(value);
    case PlanObjective::price:
      return fmt::format("{:.4g} USD", value);
    case PlanObjective::energy:
      return fmt::format("{:.4g} kWh", value);
    case PlanObjective::carbon:
      return fmt::format("{:.4g} kg CO2e", value);
  }
  return {};
}

std::string goal_lines(const PlanReport& report) {
  const Plan& plan = report.plan;
  const PlanObjective objective = report.request.objective;
  std::string text;
  if (objective != PlanObjective::time) {
    text += fmt::format(
        "  {} a step: {}, on {} of {} chips; chips that hold no stage are neither rented nor on\n",
        name_of(objective), format_value(objective, plan.value()), plan.job.strategy.rank_count(),
        plan.job.cluster.chip_count());
    text += fmt::format("  no strategy{} takes less than {}: the plan is at most {} above the best\n",
                        plan.goal.has_targets() ? " that meets the targets" : "",
                        format_value(objective, plan.value_bound),
                        format_percent(plan.value() / plan.value_bound - 1));
  } else if (plan.goal.has_targets()) {
    text += fmt::format("  no strategy that meets the targets takes less than {}\n",
                        format_seconds(plan.value_bound));
  }
  if (tokens_of(report) <= 0) return text;
  const PlanRequest& request = report.request;
  const double steps = steps_taken(report);
  text += fmt::format("  the whole run, {} tokens: {}{}", format_count(tokens_of(report)),
                      format_seconds(steps * plan.verdict.step_s),
                      at_most(request.deadline_s, format_seconds(request.deadline_s)));
  if (plan.verdict.bill.usd)
    text += fmt::format(", {:.6g} USD{}", steps * *plan.verdict.bill.usd,
                        at_most(request.budget_usd, fmt::format("{:.6g} USD", request.budget_usd)));
  return text + "\n";
}

void add_goal(const PlanReport& report, nlohmann::ordered_json& json) {
  const Plan& plan = report.plan;
  json["value"] = known(plan.value());
  json["value_bound"] = known(plan.value_bound);
  json["value_gap"] = known(plan.gap());
  json["chips"] = plan.job.strategy.rank_count();
  json["step_usd"] = known(plan.verdict.bill.usd);
  json["step_kwh"] = known(plan.verdict.bill.kwh);
  json["step_kg_co2e"] = known(plan.verdict.bill.kg_co2e);
  if (tokens_of(report) <= 0) return;
  json["run_s"] = steps_taken(report) * plan.verdict.step_s;
  json["run_usd"] = plan.verdict.bill.usd ? known(steps_taken(report) * *plan.verdict.bill.usd) : nullptr;
}

}  // namespace motley
