// The Report as JSON, schema "motley.simulate/1": keys in a fixed order, seconds and bytes unrounded. A key is never
// renamed within a schema; new ones may be added.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "models/base/json_text.hpp"
#include "models/report/report.hpp"

namespace motley {
namespace {

using nlohmann::ordered_json;

// A name of a purpose as a key has it: "exposed_data_parallel".
std::string_view name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::compute:
      return "compute";
    case Purpose::recompute:
      return "recompute";
    case Purpose::bubble:
      return "bubble";
    case Purpose::waiting:
      return "waiting_for_slower";
    case Purpose::tensor_parallel:
      return "exposed_tensor_parallel";
    case Purpose::expert_parallel:
      return "exposed_expert_parallel";
    case Purpose::context_parallel:
      return "exposed_context_parallel";
    case Purpose::pipeline:
      return "exposed_pipeline_parallel";
    case Purpose::data_parallel:
      return "exposed_data_parallel";
    case Purpose::offload:
      return "exposed_offload";
    case Purpose::optimizer:
      return "optimizer";
  }
  return "?";
}

void add_seconds(const Breakdown& row, ordered_json& json) {
  for (int i = 0; i < kPurposes; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    json[std::string(name_of(purpose)) + "_s"] = row[purpose];
  }
}

ordered_json json_of(const StageBreakdown& row) {
  ordered_json json = {
      {"stage", row.stage}, {"rank", row.rank}, {"chip", row.on.chip}, {"group", row.on.group}};
  add_seconds(row, json);
  return json;
}

ordered_json json_of(const StageWait& wait) {
  return {{"stage", wait.stage},
          {"rank", wait.rank},
          {"chip", wait.on.chip},
          {"group", wait.on.group},
          {"waiting_for_slower_s", wait.waiting_s},
          {"slower_stage", wait.slower_stage},
          {"slower_rank", wait.slower},
          {"slower_chip", wait.slower_on.chip},
          {"slower_group", wait.slower_on.group},
          {"for_slower_rank_s", wait.for_slower_s}};
}

ordered_json finding_of(const Report& report) {
  const Purpose purpose = bound_by(report);
  return {{"bound_by", name_of(purpose)}, {"share", share_of(report, purpose)}};
}

// A change is null if none that was simulated makes the step shorter.
ordered_json json_of(const Advice& advice) {
  const bool helps = !advice.change.empty();
  return {{"simulated", advice.simulated},
          {"change", helps ? ordered_json(advice.change) : ordered_json(nullptr)},
          {"iteration_s", helps ? ordered_json(advice.step_s) : ordered_json(nullptr)}};
}

ordered_json json_of(const StageMemory& row) {
  const double fraction =
      row.capacity > 0 ? static_cast<double>(row.peak) / static_cast<double>(row.capacity) : 0;
  return {{"stage", row.stage},
          {"parameters", row.parameters},
          {"gradients", row.gradients},
          {"optimizer", row.optimizer},
          {"activations", row.activations_peak},
          {"logits", row.logits},
          {"buffers", row.buffers},
          {"buckets", row.buckets},
          {"runtime", row.runtime},
          {"fragmentation", row.fragmentation},
          {"peak", row.peak},
          {"capacity", row.capacity},
          {"fraction", fraction},
          {"host", row.host},
          {"host_capacity", row.host_capacity}};
}

ordered_json json_of(const PathBreakdown& path) {
  return {{"compute_s", path.compute_s},
          {"recompute_s", path.recompute_s},
          {"tensor_parallel_s", path.tensor_parallel_s},
          {"expert_parallel_s", path.expert_parallel_s},
          {"context_parallel_s", path.context_parallel_s},
          {"pipeline_parallel_s", path.pipeline_s},
          {"data_parallel_s", path.data_parallel_s},
          {"offload_s", path.offload_s},
          {"optimizer_s", path.optimizer_s},
          {"gap_s", path.gap_s},
          {"links", path.links}};
}

ordered_json known(const std::optional<double>& value, double scale = 1) {
  return value ? ordered_json(*value * scale) : ordered_json(nullptr);
}

// Writes a run; kWh become MWh, and kg become t.
ordered_json json_of(const TrainingRun& run) {
  return {{"tokens", run.tokens},
          {"goodput", run.goodput},
          {"steps", run.steps},
          {"seconds", run.seconds},
          {"days", run.seconds / 86400},
          {"usd", known(run.bill.usd)},
          {"electricity_usd", known(run.bill.electricity_usd)},
          {"mwh", known(run.bill.kwh, 1e-3)},
          {"mwh_at_tdp", known(run.bill.kwh_at_most, 1e-3)},
          {"t_co2e", known(run.bill.kg_co2e, 1e-3)}};
}

ordered_json json_of(const Spending& spending) {
  const Bill &step = spending.step, &billion = spending.billion_tokens;
  return {{"usd_per_step", known(step.usd)},
          {"usd_per_billion_tokens", known(billion.usd)},
          {"kwh_per_step_at_tdp", known(step.kwh_at_most)},
          {"kwh_per_step", known(step.kwh)},
          {"kwh_per_billion_tokens", known(billion.kwh)},
          {"electricity_usd_per_step", known(step.electricity_usd)},
          {"electricity_usd_per_billion_tokens", known(billion.electricity_usd)},
          {"kg_co2e_per_step", known(step.kg_co2e)},
          {"kg_co2e_per_billion_tokens", known(billion.kg_co2e)},
          {"unpriced", spending.unpriced},
          {"unpowered", spending.unpowered},
          {"no_electricity", spending.no_electricity},
          {"no_carbon", spending.no_carbon},
          {"run", spending.run ? json_of(*spending.run) : ordered_json(nullptr)}};
}

template <class Row>
ordered_json list_of(const std::vector<Row>& rows) {
  ordered_json list = ordered_json::array();
  for (const Row& row : rows) list.push_back(json_of(row));
  return list;
}

ordered_json object_of(const RealPart& real) {
  ordered_json json = {{"ranks", ordered_json::array()}, {"stand_for", real.for_class ? "class" : "rank"}};
  for (const Rank rank : real.ranks) json["ranks"].push_back(rank.value());
  json["moved"] = real.moved;
  json["moved_bytes"] = real.moved_bytes;
  json["moved_timed"] = real.measured ? "measured" : "priced";
  json["moved_by"] = print(real.paths);
  json["filled_in"] = real.filled_in;
  json["filled_in_bytes"] = real.filled_in_bytes;
  return json;
}

ordered_json object_of(const StepSpread& spread) {
  ordered_json json = {{"parts", spread.parts},         {"alike_s", spread.alike_s},
                       {"mean_s", spread.mean_s},       {"p5_s", spread.p5_s},
                       {"p50_s", spread.p50_s},         {"p95_s", spread.p95_s},
                       {"simulated", spread.simulated}, {"slowest", ordered_json::array()}};
  for (const StepSpread::Part& part : spread.slowest)
    json["slowest"].push_back({{"name", part.name}, {"speed", part.speed}});
  if (!spread.drawn.empty()) json["drawn_s"] = spread.drawn;
  return json;
}

ordered_json shares_of(const Coverage& coverage) {
  ordered_json json;
  for (const Known known : every<Known>()) json[std::string(name_of(known))] = coverage.share(known);
  json["messages"] = coverage.message_share();
  return json;
}

}  // namespace

std::string to_json(const Report& report) {
  ordered_json json;
  json["schema"] = "motley.simulate/1";
  json["scenario"] = report.scenario;
  json["strategy_hash"] = report.strategy_hash;
  json["program_hash"] = report.program_hash;
  json["iteration_s"] = report.iteration_s;
  if (report.interval)
    json["interval"] = {
        {"low_s", report.interval->low * report.iteration_s},
        {"high_s", report.interval->high * report.iteration_s},
        {"share", kIntervalShare},
        {"regime", name_of(report.interval->regime)},
        {"software",
         report.interval->software.empty() ? ordered_json(nullptr) : ordered_json(report.interval->software)},
        {"source", report.interval->source}};
  if (report.measured_s > 0) {
    json["measured_s"] = report.measured_s;
    json["error_pct"] = 100 * (report.iteration_s / report.measured_s - 1);
  }
  if (report.coverage) json["coverage"] = shares_of(*report.coverage);
  if (report.own_s > 0) json["own_figures_s"] = report.own_s;
  if (report.draws) {
    json["route_draws"] = {{"repeated", report.draws->repeated}, {"others", report.draws->others}};
    if (report.draws->others > 0) {
      json["route_draws"]["least_s"] = report.draws->least_s;
      json["route_draws"]["most_s"] = report.draws->most_s;
    }
  }
  if (report.real) json["real"] = object_of(*report.real);
  if (report.spread) json["variation"] = object_of(*report.spread);
  json["tokens_per_s"] = report.tokens_per_s;
  json["tokens_per_s_per_chip"] = report.tokens_per_s_per_chip;
  json["sequences_per_s"] = report.sequences_per_s;
  json["tflops_per_chip"] = report.tflops_per_chip;
  json["tflops_per_chip_megatron"] = report.tflops_per_chip_megatron;
  json["mfu"] = report.mfu;
  json["hfu"] = report.hfu;
  json["flop_formula"] = report.flop_formula;
  json["chips"] = report.chips;
  if (report.simulation_bytes > 0) json["simulation_bytes"] = std::llround(report.simulation_bytes);
  json["breakdown"] = list_of(report.breakdown);
  add_seconds(report.all_chips, json["all_chips"]);
  json["waits"] = list_of(report.waits);
  json["memory"] = list_of(report.memory);
  json["spending"] = json_of(report.spending);
  json["critical_path"] = json_of(report.critical_path);
  if (!report.notes.empty()) json["notes"] = report.notes;
  json["finding"] = finding_of(report);
  json["advice"] = json_of(report.advice);
  return json_text(json);
}

}  // namespace motley
