// Text and JSON (schema "motley.policies/1": a key is never renamed, new ones may be added).
#include "models/plan/policies_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/plan/findings_text.hpp"
#include "models/plan/policy.hpp"

namespace motley {
namespace {

// The layers of each stage, equal neighbours as one: "2 x 14, 15".
std::string layer_counts(const PipelineTemplate& pipeline) {
  std::vector<std::string> parts;
  for (std::size_t first = 0, last = 0; first < pipeline.stages.size(); first = last) {
    const auto count = [&](std::size_t i) {
      const Stage& stage = pipeline.stages[i];
      std::int64_t layers = stage.last_layer - stage.first_layer;
      for (const Layers& more : stage.more) layers += more.last - more.first;
      return layers;
    };
    while (last < pipeline.stages.size() && count(last) == count(first)) ++last;
    parts.push_back(last - first == 1 ? std::to_string(count(first))
                                      : fmt::format("{} x {}", last - first, count(first)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Tensor-parallel degrees in the order of the stages: "8 | 4" where they differ.
std::string degrees_text(const Plan& plan) {
  const PipelineTemplate& pipeline = plan.job.strategy.templates.at(0);
  std::vector<std::int64_t> tensor;
  for (const Stage& stage : pipeline.stages)
    if (tensor.empty() || tensor.back() != stage.tensor_parallel) tensor.push_back(stage.tensor_parallel);
  return fmt::format("tp {} x pp {} x dp {}", fmt::join(tensor, "|"), pipeline.stages.size(),
                     pipeline.replicas);
}

std::string cells(const PoliciesReport& report) {
  const Plan* best = best_plan(report);
  const bool has_sum = !report.baselines.empty();
  std::vector<std::string> header = {"policy",    "step",    "to the best", "judged",
                                     "transport", "degrees", "layers"};
  if (has_sum) header.insert(header.begin() + 3, "of the sum");
  Table table(has_sum ? "lrrrrlll" : "lrrrlll", header);
  for (const PolicyPlan& each : report.plans) {
    std::vector<std::string> row = {std::string(name_of(each.policy))};
    if (!each.plan) {
      row.insert(row.end(), {"-", "-"});
      if (has_sum) row.push_back("-");
      row.insert(row.end(), {"-", "-", "-", each.refused});
      table.add(row);
      continue;
    }
    const Plan& plan = *each.plan;
    row.push_back(format_seconds(plan.simulated_s));
    row.push_back(fmt::format("{:.3f}", plan.simulated_s / best->simulated_s));
    if (has_sum) {
      const std::optional<double> ratio = speedup_ratio(plan.simulated_s, report.baselines);
      row.push_back(ratio ? format_percent(*ratio) : "-");
    }
    row.push_back(std::to_string(plan.judged));
    row.push_back(std::string(name_of(plan.job.cluster.transport)));
    row.push_back(degrees_text(plan));
    row.push_back(layer_counts(plan.job.strategy.templates.at(0)));
    table.add(row);
  }
  return table.print();
}

}  // namespace

const Plan* best_plan(const PoliciesReport& report) {
  const Plan* best = nullptr;
  for (const PolicyPlan& each : report.plans)
    if (each.plan && (best == nullptr || each.plan->simulated_s < best->simulated_s)) best = &*each.plan;
  return best;
}

std::string to_text(const PoliciesReport& report) {
  std::string text = fmt::format("{}: every policy, all judged by the same simulation{}\n\n", report.scenario,
                                 ablations_text(report.request.ablate));
  text += cells(report);
  text += baselines_text(best_plan(report)->simulated_s, report.baselines);
  text += "\nwhat each policy tried, and what of it rests on recollection:\n";
  for (const PolicyPlan& each : report.plans) {
    text += fmt::format("  {}: {}\n", name_of(each.policy), recollection_of(each.policy));
    if (each.plan) text += findings_text(*each.plan, "    ");
  }
  text += fmt::format("\nin {}\n", format_seconds(report.search_s));
  return text;
}

std::string to_json(const PoliciesReport& report) {
  nlohmann::ordered_json json;
  json["schema"] = "motley.policies/1";
  json["scenario"] = report.scenario;
  json["ablate"] = nlohmann::ordered_json::array();
  for (const Ablation each : report.request.ablate) json["ablate"].push_back(name_of(each));
  json["plans"] = nlohmann::ordered_json::array();
  for (const PolicyPlan& each : report.plans) {
    nlohmann::ordered_json entry;
    if (each.plan) {
      PlanReport own{report.scenario, report.request, *each.plan};
      own.request.policy = each.policy;
      own.baselines = report.baselines;
      entry = json_of(own);
      entry.erase("search_s");
      entry["ratio_to_best"] = each.plan->simulated_s / best_plan(report)->simulated_s;
      entry["refused_because"] = nullptr;
    } else {
      entry["policy"] = name_of(each.policy);
      entry["simulated_s"] = nullptr;
      entry["ratio_to_best"] = nullptr;
      entry["refused_because"] = each.refused;
      entry["recollection"] = recollection_of(each.policy);
    }
    json["plans"].push_back(std::move(entry));
  }
  json["search_s"] = report.search_s;
  return json_text(json);
}

}  // namespace motley
