// What a scenario's `plan:` asks of the planner. Read next: models/plan/planner.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

// What a plan makes least of: the time, the rent, the energy or the carbon of a step, and so of a token.
enum class PlanObjective : std::uint8_t { time, price, energy, carbon };
template <>
inline constexpr auto kWords<PlanObjective> = words("time", "price", "energy", "carbon");

// What every plan must have, in the words of a strategy. Nothing that is empty or 0 is asked for.
struct PlanPins {
  std::vector<std::string> groups;  // stages stand on these groups alone
  // The tensor parallelism of the stages on a group; of every stage, where the name is empty.
  std::vector<std::pair<std::string, std::int64_t>> tensor_parallel;
  std::int64_t pipeline_parallel = 0;  // stages of each pipeline
  std::int64_t data_parallel = 0;      // replicas of all pipelines together
  std::int64_t micro_batch = 0;        // sequences of a micro-batch
  std::int64_t most_stages = 0;        // of each pipeline
  // Pairs of groups between which no byte goes: neither activations nor gradients.
  std::vector<std::vector<std::string>> forbidden_links;
  bool operator==(const PlanPins&) const = default;
};

// The framework that shall run the plan, by its name in models/frameworks/framework.hpp; any: what it can say is no
// condition.
enum class PlanTarget : std::uint8_t { any, megatron_lm, megatron_bridge, flagscale, torchtitan, deepspeed };
template <>
inline constexpr auto kWords<PlanTarget> = words("any", "megatron-lm", "megatron-bridge", "flagscale",
                                                 "torchtitan", "deepspeed");

struct PlanRequest {
  PlanPolicy policy = PlanPolicy::optimal;
  PlanObjective objective = PlanObjective::time;
  double time_limit_s = 0;         // 0: no limit
  std::int64_t evaluations = 400;  // jobs that are simulated at most
  double tokens = 0;               // of the whole run; 0: Train::tokens
  double deadline_s = 0;           // most seconds of the whole run; 0: none
  double budget_usd = 0;           // most rent of the whole run; 0: none
  PlanPins pins;
  PlanTarget target = PlanTarget::any;
  bool operator==(const PlanRequest&) const = default;
};

}  // namespace motley
