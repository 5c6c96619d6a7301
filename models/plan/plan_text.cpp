// Text and JSON (schema "motley.plan/1": a key is never renamed, new ones may be added).
#include "models/plan/plan_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/plan/findings_text.hpp"
#include "models/plan/goal_text.hpp"
#include "models/plan/policy.hpp"

namespace motley {
namespace {

std::string describe(PlanEnd end) {
  switch (end) {
    case PlanEnd::no_move_helps:
      return "no change of one thing makes the plan better";
    case PlanEnd::all_judged:
      return "every proposal of the policy was judged";
    case PlanEnd::evaluations:
      return "as many strategies were judged as `evaluations` allows";
    case PlanEnd::time:
      return "time was over: the limit was reached, or it was interrupted";
  }
  return {};
}

std::string word_of(PlanEnd end) {
  switch (end) {
    case PlanEnd::no_move_helps:
      return "no-move-helps";
    case PlanEnd::all_judged:
      return "all-judged";
    case PlanEnd::evaluations:
      return "evaluations";
    case PlanEnd::time:
      return "time";
  }
  return {};
}

std::int64_t sequences_of(const PipelineTemplate& pipeline, const Train& train) {
  return pipeline.micro_batch > 0 ? pipeline.micro_batch : train.micro_batch;
}

std::string layers_of(const Stage& stage) {
  std::string text = print(Layers{stage.first_layer, stage.last_layer});
  for (const Layers& more : stage.more) text += ", " + print(more);
  return text;
}

std::string recomputed_of(const Stage& stage, const Strategy& strategy) {
  const std::string text = text_of(stage.recompute.value_or(strategy.recompute));
  if (!stage.recompute_layers) return text;
  return fmt::format("{}, first {}{}", text, *stage.recompute_layers, stage.more.empty() ? "" : " each");
}

// Replicas have a column if they are not the same in all stages.
std::string stages_table(const Strategy& strategy) {
  const bool is_unlike = std::any_of(strategy.templates.begin(), strategy.templates.end(),
                                     [](const PipelineTemplate& each) { return each.has_unlike_replicas(); });
  std::vector<std::string> names = {"template", "stage", "on", "layers", "tp", "cp", "ep", "recompute"};
  if (is_unlike) names.push_back("replicas");
  Table table(is_unlike ? "lrllrrrlr" : "lrllrrrl", names);
  for (std::size_t i = 0; i < strategy.templates.size(); ++i) {
    const PipelineTemplate& pipeline = strategy.templates[i];
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      const Stage& stage = pipeline.stages[s];
      std::vector<std::string> row = {
          std::to_string(i),
          std::to_string(s),
          stage.on.empty() ? "any chips" : fmt::format("{}", fmt::join(stage.on, ", ")),
          layers_of(stage),
          std::to_string(stage.tensor_parallel),
          std::to_string(pipeline.context_parallel),
          std::to_string(stage.expert_parallel),
          recomputed_of(stage, strategy)};
      if (is_unlike) row.push_back(std::to_string(pipeline.replicas_of(stage)));
      table.add(row);
    }
  }
  return table.print();
}

// "8 replicas, 4 micro-batches of 2 sequences"
std::string replicas_of(const PipelineTemplate& pipeline, const Train& train) {
  return fmt::format("{} replica{}, {} micro-batch{} of {} sequence{}", pipeline.replicas,
                     pipeline.replicas == 1 ? "" : "s", pipeline.micro_batches,
                     pipeline.micro_batches == 1 ? "" : "es", sequences_of(pipeline, train),
                     sequences_of(pipeline, train) == 1 ? "" : "s");
}

std::string templates_text(const Strategy& strategy, const Train& train) {
  if (strategy.templates.size() == 1) return replicas_of(strategy.templates[0], train);
  return fmt::format("{} templates of pipelines", strategy.templates.size());
}

// ", offload optimizer 100 %, activations 50 %" if all stages offload alike; empty if none does.
std::string offload_text(const Strategy& strategy) {
  std::set<std::pair<double, double>> shares;
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const Stage& stage : pipeline.stages) {
      const Offload& offload = stage.offload.value_or(strategy.offload);
      shares.emplace(offload.optimizer, offload.activations);
    }
  if (shares.size() != 1) return shares.empty() ? "" : ", some stages offload";
  const auto [optimizer, activations] = *shares.begin();
  if (optimizer <= 0 && activations <= 0) return "";
  return fmt::format(", offload{}{}{}", optimizer > 0 ? " optimizer " + format_percent(optimizer) : "",
                     optimizer > 0 && activations > 0 ? "," : "",
                     activations > 0 ? " activations " + format_percent(activations) : "");
}

bool may_offload(const Cluster& cluster) {
  return std::any_of(cluster.groups.begin(), cluster.groups.end(),
                     [](const NodeGroup& group) { return group.host.has_value(); });
}

// What each template has, where there are several.
std::string templates_lines(const Strategy& strategy, const Train& train) {
  std::string text;
  for (std::size_t i = 0; strategy.templates.size() > 1 && i < strategy.templates.size(); ++i)
    text += fmt::format("  template {}: {}\n", i, replicas_of(strategy.templates[i], train));
  return text;
}

}  // namespace

std::string describe_progress(PlanObjective objective, double best, double bound) {
  if (best <= 0 || best == Goal::kNone) return "none fits yet";
  if (bound <= 0 || bound == Goal::kNone) return fmt::format("best {}", format_value(objective, best));
  return fmt::format("best {}, at most {} above the best possible", format_value(objective, best),
                     format_percent(best / bound - 1));
}

std::string to_text(const PlanReport& report) {
  const Plan& plan = report.plan;
  const Strategy& strategy = plan.job.strategy;
  std::string text = fmt::format("{}: {} a step, simulated{}\n", report.scenario,
                                 format_seconds(plan.simulated_s), ablations_text(report.request.ablate));
  text += fmt::format("  no strategy takes less than {}: the plan is at most {} above the best\n",
                      format_seconds(plan.bound_s), format_percent(plan.simulated_s / plan.bound_s - 1));
  if (plan.form_bound_s) {
    const bool has_experts = plan.job.transformer.experts.count > 0;
    text += fmt::format(
        "  no pipeline of equal replicas under 1f1b that {}{}reduces gradients after it takes less than "
        "{}{}\n",
        may_offload(plan.job.cluster) ? has_experts ? "offloads nothing, " : "offloads nothing and " : "",
        has_experts ? "weighs experts at their activation and " : "", format_seconds(*plan.form_bound_s),
        plan.simulated_s < *plan.form_bound_s
            ? ""
            : fmt::format(": {} below the plan", format_percent(1 - *plan.form_bound_s / plan.simulated_s)));
  }
  text += goal_lines(report);
  if (plan.own_s)
    text += fmt::format("  the scenario's own strategy takes {} ({:+.1f} %)\n", format_seconds(*plan.own_s),
                        (*plan.own_s / plan.simulated_s - 1) * 100);
  text += fmt::format("\n{} schedule, {}, zero {}{}{}{}\n{}\n", name_of(strategy.schedule),
                      templates_text(strategy, plan.job.train), strategy.zero, offload_text(strategy),
                      strategy.overlap_gradients ? ", gradients overlap" : "",
                      strategy.overlap_parameters ? ", parameters overlap" : "",
                      templates_lines(strategy, plan.job.train));
  text += stages_table(strategy);
  text += fmt::format("transport {}\n", name_of(plan.job.cluster.transport));
  text += baselines_text(plan.simulated_s, report.baselines);
  text += fmt::format(
      "\npolicy {}: {} pipelines laid out, {} more pruned, {} simulated, {} of them refused{}, in {}\n",
      name_of(report.request.policy), plan.explored, plan.pruned, plan.judged - plan.bounded, plan.refused,
      plan.bounded > 0 ? fmt::format(", {} more judged by a bound alone", plan.bounded) : "",
      format_seconds(report.search_s));
  text += findings_text(plan, "  ");
  text += fmt::format("  {}: {}\n", name_of(report.request.policy), recollection_of(report.request.policy));
  text += fmt::format("ended because {}\n", describe(plan.end));
  text += fmt::format("strategy {}\n", strategy_hash(plan.job.transformer, plan.job.train, strategy));
  return text;
}

nlohmann::ordered_json json_of(const PlanReport& report) {
  const Plan& plan = report.plan;
  nlohmann::ordered_json json;
  json["schema"] = "motley.plan/1";
  json["scenario"] = report.scenario;
  json["policy"] = name_of(report.request.policy);
  json["recollection"] = recollection_of(report.request.policy);
  json["ablate"] = nlohmann::ordered_json::array();
  for (const Ablation each : report.request.ablate) json["ablate"].push_back(name_of(each));
  json["notes"] = plan.notes;
  json["variants"] = nlohmann::ordered_json::array();
  for (const VariantResult& each : plan.variants)
    json["variants"].push_back({{"what", each.what},
                                {"simulated_s", each.step_s > 0 ? nlohmann::ordered_json(each.step_s)
                                                                : nlohmann::ordered_json(nullptr)}});
  json["objective"] = name_of(report.request.objective);
  json["strategy"] = print(plan.job.strategy);
  json["transport"] = name_of(plan.job.cluster.transport);
  json["strategy_hash"] = strategy_hash(plan.job.transformer, plan.job.train, plan.job.strategy);
  json["simulated_s"] = plan.simulated_s;
  json["bound_s"] = plan.bound_s;
  json["gap"] = (plan.simulated_s - plan.bound_s) / plan.simulated_s;
  json["form_bound_s"] =
      plan.form_bound_s ? nlohmann::ordered_json(*plan.form_bound_s) : nlohmann::ordered_json(nullptr);
  add_goal(report, json);
  json["own_s"] = plan.own_s ? nlohmann::ordered_json(*plan.own_s) : nlohmann::ordered_json(nullptr);
  const std::optional<double> ratio = speedup_ratio(plan.simulated_s, report.baselines);
  json["upper_bound_pct"] = ratio ? nlohmann::ordered_json(100 * *ratio) : nlohmann::ordered_json(nullptr);
  json["speedup_ratio"] = ratio ? nlohmann::ordered_json(*ratio) : nlohmann::ordered_json(nullptr);
  json["baselines"] = nlohmann::ordered_json::array();
  for (const Baseline& each : report.baselines)
    json["baselines"].push_back({{"group", each.group},
                                 {"chips", each.chips},
                                 {"simulated_s", each.step_s ? nlohmann::ordered_json(*each.step_s)
                                                             : nlohmann::ordered_json(nullptr)},
                                 {"recomputes", each.recomputes},
                                 {"offloads", each.offloads}});
  json["cannot_hold_the_model"] = nlohmann::ordered_json::array();
  for (const Baseline& each : report.baselines)
    if (!each.step_s) json["cannot_hold_the_model"].push_back(each.group);
  json["explored"] = plan.explored;
  json["pruned"] = plan.pruned;
  json["simulated"] = plan.judged - plan.bounded;
  json["bounded"] = plan.bounded;
  json["refused"] = plan.refused;
  json["ended"] = word_of(plan.end);
  json["search_s"] = report.search_s;
  return json;
}

std::string to_json(const PlanReport& report) { return json_text(json_of(report)); }

}  // namespace motley
