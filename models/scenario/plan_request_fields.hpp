// The fields of `plan:`, listed once. Read next: models/scenario/scenario.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/base/field_forms.hpp"
#include "models/scenario/plan_request.hpp"
#include "models/transformer/train_text.hpp"

namespace motley {

inline constexpr IntegerRange kEvaluations{1, 1'000'000};

// Seconds with a unit: "10 s".
struct PositiveSeconds {
  std::string text(double value) const { return format_exact(value, Dimension::seconds); }
  void read(const Yaml& node, double& value) const {
    value = to_quantity(node, Dimension::seconds, Sign::positive);
  }
};

// The rent of a whole run: "500000 USD".
struct PositiveDollars {
  std::string text(double value) const { return format_exact(value, Dimension::dollars); }
  void read(const Yaml& node, double& value) const {
    value = to_quantity(node, Dimension::dollars, Sign::positive);
  }
};

// The tokens of a whole run: "2T".
struct PositiveTokens {
  std::string text(double value) const { return format_exact(value, Dimension::count); }
  void read(const Yaml& node, double& value) const { value = to_tokens(node); }
};

// One degree for every group, "8", or one for each: "{a: 8, b: 4}".
struct DegreesOfGroups {
  using Degrees = std::vector<std::pair<std::string, std::int64_t>>;
  std::string text(const Degrees& value) const {
    if (value.size() == 1 && value[0].first.empty()) return std::to_string(value[0].second);
    std::string list;
    for (const auto& [group, degree] : value)
      list += fmt::format("{}{}: {}", list.empty() ? "" : ", ", quote(group), degree);
    return fmt::format("{{{}}}", list);
  }
  void read(const Yaml& node, Degrees& value) const {
    value.clear();
    if (!node->is_map()) {
      value.emplace_back("", to_integer(node, kPositive));
      return;
    }
    for (const YamlEntry& entry : node->entries)
      value.emplace_back(entry.key, to_integer(entry.value, kPositive));
  }
};

struct PlanPinsFields {
  using Struct = PlanPins;
  constexpr void each(auto&& visit) const {
    visit(field("groups", Several<QuotedText>{}, &PlanPins::groups).unless_standard());
    visit(field("tensor_parallel", DegreesOfGroups{}, &PlanPins::tensor_parallel)
              .or_short("tp")
              .unless_standard());
    visit(field("pipeline_parallel", Integer{kPositive}, &PlanPins::pipeline_parallel)
              .or_short("pp")
              .unless_standard());
    visit(field("data_parallel", Integer{kPositive}, &PlanPins::data_parallel)
              .or_short("dp")
              .unless_standard());
    visit(field("micro_batch", Integer{kPositive}, &PlanPins::micro_batch).unless_standard());
    visit(field("most_stages", Integer{kPositive}, &PlanPins::most_stages).unless_standard());
    visit(field("forbidden_links", Several<Several<QuotedText>>{}, &PlanPins::forbidden_links)
              .unless_standard());
  }
};

// One word or a list of them. Throws Refusal("listed-twice"), and Refusal("both-reshardings") for two that exclude each
// other.
struct Ablations {
  std::string text(const std::vector<Ablation>& values) const;
  void read(const Yaml& node, std::vector<Ablation>& values) const;
};

struct PlanRequestFields {
  using Struct = PlanRequest;
  constexpr void each(auto&& visit) const {
    visit(field("policy", Word<PlanPolicy>{}, &PlanRequest::policy).unless_standard());
    visit(field("objective", Word<PlanObjective>{}, &PlanRequest::objective).unless_standard());
    visit(field("time_limit", PositiveSeconds{}, &PlanRequest::time_limit_s).unless_standard());
    visit(field("evaluations", Integer{kEvaluations}, &PlanRequest::evaluations).unless_standard());
    visit(field("tokens", PositiveTokens{}, &PlanRequest::tokens).unless_standard());
    visit(field("deadline", PositiveSeconds{}, &PlanRequest::deadline_s).unless_standard());
    visit(field("budget", PositiveDollars{}, &PlanRequest::budget_usd).unless_standard());
    visit(field("target", Word<PlanTarget>{}, &PlanRequest::target).unless_standard());
    visit(field("pins", Map<PlanPinsFields>{"`pins`"}, &PlanRequest::pins).unless_standard());
    visit(field("ablate", Ablations{}, &PlanRequest::ablate).unless_standard());
  }
};

}  // namespace motley
