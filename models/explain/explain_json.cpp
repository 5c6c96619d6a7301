// An explanation as JSON, schema "motley.explain/1": keys in a fixed order, seconds unrounded. A key is never renamed
// within a schema; new ones may be added. Two scenarios have the keys `a` and `b`, beside `why`.
#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/explain/explain.hpp"

namespace motley {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const PathPart& part, double step_s) {
  return {{"spent_on", name_of(part.spent)},
          {"recompute", part.recompute},
          {"on", part.on},
          {"group", part.group},
          {"seconds", part.seconds},
          {"share", step_s > 0 ? part.seconds / step_s : 0}};
}

ordered_json json_of(const LeverGain& gain, const Explained& explained) {
  const double step_s = explained.report.iteration_s;
  const auto known = [&](double value) { return value > 0 ? ordered_json(value) : ordered_json(nullptr); };
  return {{"what", gain.lever.what},
          {"where", gain.lever.where},
          {"value", known(gain.lever.value)},
          {"better", known(gain.lever.better(explained.factor))},
          {"iteration_s", gain.step_s},
          {"change", step_s > 0 ? gain.step_s / step_s - 1 : 0},
          {"on_path_s", gain.on_path_s ? ordered_json(*gain.on_path_s) : ordered_json(nullptr)}};
}

ordered_json json_of(const Trial& trial, double step_s) {
  if (!trial.stands()) return {{"iteration_s", nullptr}, {"change", nullptr}, {"refused", trial.refused}};
  return {{"iteration_s", trial.step_s},
          {"change", step_s > 0 ? trial.step_s / step_s - 1 : 0},
          {"refused", nullptr}};
}

// An empty text means a missing key and becomes null.
ordered_json known(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json json_of(const Explained& explained) {
  const Report& report = explained.report;
  ordered_json json;
  json["scenario"] = report.scenario;
  json["strategy_hash"] = report.strategy_hash;
  json["program_hash"] = report.program_hash;
  json["chips"] = report.chips;
  json["iteration_s"] = report.iteration_s;
  json["tokens_per_s"] = report.tokens_per_s;
  json["mfu"] = report.mfu;
  json["stages_wait_share"] = stages_wait_share(explained);
  json["path_instructions"] = explained.path_links;
  auto& path = json["critical_path"] = ordered_json::array();
  for (const PathPart& part : explained.path) path.push_back(json_of(part, report.iteration_s));
  json["better_by"] = explained.factor;
  auto& levers = json["levers"] = ordered_json::array();
  for (const LeverGain& gain : explained.levers) levers.push_back(json_of(gain, explained));
  auto& sets = json["levers_together"] = ordered_json::array();
  for (const LeverGain& gain : explained.sets) sets.push_back(json_of(gain, explained));
  json["all_levers"] = explained.all ? json_of(*explained.all, explained) : ordered_json(nullptr);
  auto& changes = json["changes"] = ordered_json::array();
  for (const ChangeGain& gain : explained.changes) {
    ordered_json change = {{"what", gain.what}};
    change.update(json_of(gain.trial, report.iteration_s));
    changes.push_back(change);
  }
  return json;
}

}  // namespace

std::string to_json(const Explained& explained) {
  ordered_json json = {{"schema", "motley.explain/1"}};
  json.update(json_of(explained));
  return json_text(json);
}

std::string to_json(const Why& why) {
  ordered_json json = {{"schema", "motley.explain/1"}};
  json["a"] = json_of(why.a);
  json["b"] = json_of(why.b);
  ordered_json& reasons = json["why"];
  reasons["iteration_s"] = why.b.report.iteration_s - why.a.report.iteration_s;
  reasons["a_tokens"] = why.a_tokens;
  reasons["b_tokens"] = why.b_tokens;
  auto& path = reasons["critical_path"] = ordered_json::array();
  for (const PathDifference& each : why.path)
    path.push_back({{"spent_on", name_of(each.spent)},
                    {"recompute", each.recompute},
                    {"on", each.on},
                    {"a_s", each.a_s},
                    {"b_s", each.b_s},
                    {"b_minus_a_s", each.b_s - each.a_s}});
  auto& parts = reasons["parts"] = ordered_json::array();
  for (const PartDifference& each : why.parts) {
    ordered_json part = {{"part", each.part}};
    auto& keys = part["keys"] = ordered_json::array();
    for (const KeyDifference& key : each.keys)
      keys.push_back({{"key", key.key}, {"a", known(key.a)}, {"b", known(key.b)}});
    part["a_with_b"] = json_of(each.a_with_b, why.a.report.iteration_s);
    part["b_with_a"] = json_of(each.b_with_a, why.b.report.iteration_s);
    parts.push_back(part);
  }
  return json_text(json);
}

}  // namespace motley
