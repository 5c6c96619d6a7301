// Text and JSON (schema "motley.buy/1": a key is never renamed, new ones may be added).
#include "models/plan/purchase_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/plan/goal_text.hpp"

namespace motley {
namespace {

constexpr std::size_t kShown = 20;  // answers with a plan, and as many without

std::string verdict_of(const Purchase& answer, const Purchase* nothing, const Goal& goal) {
  if (answer.is_pruned) return "not planned: its bound is no better than the best";
  if (!answer.planned) return answer.refused.empty() ? "time was over" : "no plan: " + answer.refused;
  if (nothing == nullptr || !nothing->planned || &answer == nothing) return "";
  const double before = nothing->planned->value(), now = answer.planned->value();
  return fmt::format("{:+.1f} % {}", (now / before - 1) * 100, name_of(goal.objective));
}

}  // namespace

std::string to_text(const std::string& scenario, const Purchases& purchases, const Goal& goal) {
  const Purchase* nothing = nullptr;
  for (const Purchase& answer : purchases.answers)
    if (answer.what == "nothing") nothing = &answer;
  Table table("llrrrrl", {"", "buy", "chips", "added", fmt::format("{} a step", name_of(goal.objective)),
                          "at least", "against nothing"});
  std::size_t rank = 0, without = 0;
  for (const Purchase& answer : purchases.answers) {
    if (answer.planned ? ++rank > kShown && &answer != nothing : ++without > kShown) continue;
    table.add({answer.planned ? std::to_string(rank) : "-", answer.what, std::to_string(answer.chips),
               fmt::format("{:.4g} USD/h", answer.usd_per_hour),
               answer.planned ? format_value(goal.objective, answer.planned->value()) : "-",
               answer.bound < Goal::kNone ? format_value(goal.objective, answer.bound) : "never",
               verdict_of(answer, nothing, goal)});
  }
  std::string text = fmt::format("{}: {} answers, {} of them planned and simulated, the best first\n\n{}\n",
                                 scenario, purchases.answers.size(), purchases.planned, table.print());
  double least = Goal::kNone;
  for (const Purchase& answer : purchases.answers) least = std::min(least, answer.bound);
  if (!purchases.answers.empty() && purchases.answers[0].planned)
    text += fmt::format("buy {}; whatever is bought, no strategy takes less than {}\n",
                        purchases.answers[0].what, format_value(goal.objective, least));
  if (!purchases.is_whole) text += "time was over before every answer was looked at\n";
  return text;
}

std::string to_json(const std::string& scenario, const Purchases& purchases, const Goal& goal) {
  nlohmann::ordered_json json;
  json["schema"] = "motley.buy/1";
  json["scenario"] = scenario;
  json["objective"] = name_of(goal.objective);
  json["planned"] = purchases.planned;
  json["is_whole"] = purchases.is_whole;
  json["answers"] = nlohmann::ordered_json::array();
  const auto known = [](double value) {
    return value < Goal::kNone ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  };
  for (const Purchase& answer : purchases.answers) {
    nlohmann::ordered_json entry;
    entry["buy"] = answer.what;
    entry["nodes"] = answer.nodes;
    entry["chips"] = answer.chips;
    entry["usd_per_hour"] = answer.usd_per_hour;
    entry["bound"] = known(answer.bound);
    entry["value"] = answer.planned ? known(answer.planned->value()) : nlohmann::ordered_json(nullptr);
    entry["step_s"] = answer.planned ? known(answer.planned->simulated_s) : nlohmann::ordered_json(nullptr);
    entry["strategy"] = answer.planned ? nlohmann::ordered_json(print(answer.planned->job.strategy))
                                       : nlohmann::ordered_json(nullptr);
    entry["pruned"] = answer.is_pruned;
    entry["refused"] = answer.refused;
    json["answers"].push_back(std::move(entry));
  }
  return json_text(json);
}

}  // namespace motley
