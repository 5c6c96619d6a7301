// The front of several objectives: strategies of which none is better than another in every objective. Read next:
// models/plan/planner.hpp, models/plan/goal_bound.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "models/plan/planner.hpp"

namespace motley {

struct ParetoPoint {
  Job job;
  Verdict verdict;
  std::vector<double> values;  // by objective
  // Of each objective: no strategy that takes no more time and no more rent than this one has a lower value.
  std::vector<double> bounds;
};

struct ParetoFront {
  std::vector<PlanObjective> objectives;
  std::vector<ParetoPoint> points;  // by the first objective, the lowest value first
  std::size_t judged = 0, refused = 0;
};

// Whether `a` is at least as good as `b` in every value, and better in one.
bool dominates(const std::vector<double>& a, const std::vector<double>& b);

// The front of all strategies that were judged for plans by each objective and, where time is one, by each other one
// under deadlines between the shortest step and that of its own best plan. Every point is simulated. Throws the
// Refusal of the first plan, if there is none. The judge must give bills.
ParetoFront plan_front(const Job& job, const Judge& judge, const PlanLimits& limits,
                       const std::vector<PlanObjective>& objectives);

std::string to_text(const std::string& scenario, const ParetoFront& front);
std::string to_json(const std::string& scenario, const ParetoFront& front);  // schema motley.pareto/1

}  // namespace motley
