// What each group of a cluster does alone: the figures against which published systems measure a mix of chips. Read
// next: models/plan/planner.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/plan/planner.hpp"

namespace motley {

// The best plan of the same model and batch on one group alone.
struct Baseline {
  std::string group;
  std::int64_t chips = 0;
  std::optional<double> step_s;  // nothing: no strategy that was tried fits
  bool recomputes = false, offloads = false;
};

// The job on one of its cluster's groups, without a strategy.
Job alone_on(const Job& job, int group);

std::vector<Baseline> plan_baselines(const Job& job, const Judge& judge, const PlanLimits& limits);

// Throughput of a step of `step_s` over that of all groups together if each worked alone: HETHUB's share of the upper
// bound (arXiv:2405.16256), H2's HeteroSpeedupRatio (arXiv:2505.17548). With the same batch everywhere it is
// (1 / step_s) / sum(1 / step alone). Above 1: the mix saves what a group alone must do, recompute for example.
// Nothing: a group cannot hold the model alone.
std::optional<double> speedup_ratio(double step_s, const std::vector<Baseline>& baselines);

}  // namespace motley
