// What a scenario's `plan:` asks of the planner. Read next: models/plan/planner.hpp.
#pragma once

#include <cstdint>

#include "models/base/words.hpp"

namespace motley {

// optimal: every pipeline that closed forms propose, improved by moves.
// hethub: as HETHUB plans (arXiv:2405.16256): only pipelines cross types of chips, all types hold stages, and a
// predictor judges each order of types, tensor and pipeline parallelism of a type, replicas and micro-batch. Assumes:
// its paper's search was not read; this is rebuilt from its description, with layers by the closed forms' balance.
// megatron: uniform degrees and layers, whatever the chips are.
enum class PlanPolicy : std::uint8_t { optimal, hethub, megatron };
template <>
inline constexpr auto kWords<PlanPolicy> = words("optimal", "hethub", "megatron");

enum class PlanObjective : std::uint8_t { time };
template <>
inline constexpr auto kWords<PlanObjective> = words("time");

struct PlanRequest {
  PlanPolicy policy = PlanPolicy::optimal;
  PlanObjective objective = PlanObjective::time;
  double time_limit_s = 0;         // 0: no limit
  std::int64_t evaluations = 400;  // jobs that are simulated at most
  bool operator==(const PlanRequest&) const = default;
};

}  // namespace motley
