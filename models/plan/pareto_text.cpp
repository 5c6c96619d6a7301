// Fronts as text and JSON (schema "motley.pareto/1": a key is never renamed, new ones may be added).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/plan/goal_text.hpp"
#include "models/plan/pareto.hpp"

namespace motley {
namespace {

// "dp 8, pp 4, 64 chips on a, b"
std::string layout_of(const Strategy& strategy) {
  const PipelineTemplate& first = strategy.templates.at(0);
  std::vector<std::string> groups;
  for (const Stage& stage : first.stages)
    for (const std::string& group : stage.on)
      if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  return fmt::format("dp {}, pp {}, {} chips{}{}", first.replicas, first.stages.size(), strategy.rank_count(),
                     groups.empty() ? "" : " on ", fmt::join(groups, ", "));
}

}  // namespace

std::string to_text(const std::string& scenario, const ParetoFront& front) {
  std::string alignment;
  std::vector<std::string> head;
  for (const PlanObjective objective : front.objectives) {
    alignment += "rr";
    head.push_back(fmt::format("{} a step", name_of(objective)));
    head.emplace_back("at least");
  }
  head.insert(head.end(), {"layout", "strategy"});
  Table table(alignment + "ll", head);
  for (const ParetoPoint& point : front.points) {
    std::vector<std::string> row;
    for (std::size_t i = 0; i < front.objectives.size(); ++i) {
      row.push_back(format_value(front.objectives[i], point.values[i]));
      row.push_back(format_value(front.objectives[i], point.bounds[i]));
    }
    row.push_back(layout_of(point.job.strategy));
    row.push_back(strategy_hash(point.job.transformer, point.job.train, point.job.strategy));
    table.add(row);
  }
  return fmt::format(
      "{}: {} of {} strategies that were simulated; none of them is worse than another in every "
      "column\n\n{}\n"
      "`at least`: no strategy that takes no more time and no more rent takes less\n",
      scenario, front.points.size(), front.judged, table.print());
}

std::string to_json(const std::string& scenario, const ParetoFront& front) {
  nlohmann::ordered_json json;
  json["schema"] = "motley.pareto/1";
  json["scenario"] = scenario;
  json["objectives"] = nlohmann::ordered_json::array();
  for (const PlanObjective objective : front.objectives) json["objectives"].push_back(name_of(objective));
  json["simulated"] = front.judged;
  json["refused"] = front.refused;
  json["points"] = nlohmann::ordered_json::array();
  for (const ParetoPoint& point : front.points) {
    const Bill& bill = point.verdict.bill;
    const auto known = [](const std::optional<double>& value) {
      return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
    };
    json["points"].push_back(
        {{"values", point.values},
         {"bounds", point.bounds},
         {"step_s", point.verdict.step_s},
         {"step_usd", known(bill.usd)},
         {"step_kwh", known(bill.kwh)},
         {"step_kg_co2e", known(bill.kg_co2e)},
         {"chips", point.job.strategy.rank_count()},
         {"strategy", print(point.job.strategy)},
         {"strategy_hash", strategy_hash(point.job.transformer, point.job.train, point.job.strategy)}});
  }
  return json_text(json);
}

}  // namespace motley
