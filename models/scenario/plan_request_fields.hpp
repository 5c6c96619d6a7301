// The fields of `plan:`, listed once. Read next: models/scenario/scenario.cpp.
#pragma once

#include "models/base/field_forms.hpp"
#include "models/scenario/plan_request.hpp"

namespace motley {

inline constexpr IntegerRange kEvaluations{1, 1'000'000};

// Seconds with a unit: "10 s".
struct PositiveSeconds {
  std::string text(double value) const { return format_exact(value, Dimension::seconds); }
  void read(const Yaml& node, double& value) const {
    value = to_quantity(node, Dimension::seconds, Sign::positive);
  }
};

struct PlanRequestFields {
  using Struct = PlanRequest;
  constexpr void each(auto&& visit) const {
    visit(field("policy", Word<PlanPolicy>{}, &PlanRequest::policy).unless_standard());
    visit(field("objective", Word<PlanObjective>{}, &PlanRequest::objective).unless_standard());
    visit(field("time_limit", PositiveSeconds{}, &PlanRequest::time_limit_s).unless_standard());
    visit(field("evaluations", Integer{kEvaluations}, &PlanRequest::evaluations).unless_standard());
  }
};

}  // namespace motley
