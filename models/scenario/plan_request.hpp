// What a scenario's `plan:` asks of the planner. Read next: models/plan/planner.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/base/words.hpp"

namespace motley {

// How a plan is chosen. optimal: of every pipeline that closed forms propose and the plans of all policies below, the
// best is improved by moves. The policies below choose as published systems do; recollection_of() in
// models/plan/policy.hpp says what in each of them rests on recollection. all: each of them, side by side.
enum class PlanPolicy : std::uint8_t {
  optimal,
  holmes,  // arXiv:2312.03549: only pipelines cross islands, layers by the islands' measured speeds
  hethub,  // arXiv:2405.16256: only pipelines cross types of chips, a tree of degrees that a predictor judges
  heteroauto,          // H2, arXiv:2505.17548: a cost formula chooses for each type, then for its sub-groups
  megatron,            // arXiv:2104.04473: uniform degrees and layers, whatever the chips are
  megatron_llama,      // megatron with Megatron-LLaMA's overlapped optimizer
  megatron_deepspeed,  // megatron with DeepSpeed's ZeRO
  all,
};
template <>
inline constexpr auto kWords<PlanPolicy> = words("optimal", "holmes", "hethub", "heteroauto", "megatron",
                                                 "megatron-llama", "megatron-deepspeed", "all");

// What a plan must do without, so that its worth can be measured.
enum class Ablation : std::uint8_t {
  uniform_layers,       // layers are spread over the stages as evenly as possible
  uniform_recompute,    // all stages recompute what the stage that recomputes most does
  naive_resharding,     // every rank is sent the whole tensor at each boundary
  gathered_resharding,  // every rank is sent a part at each boundary, and the ranks gather the whole
  no_overlap,           // nothing is transferred, reduced or gathered beside computation
  sockets,              // all NICs are Ethernet
};
template <>
inline constexpr auto kWords<Ablation> = words("uniform-layers", "uniform-recompute", "naive-resharding",
                                               "gathered-resharding", "no-overlap", "sockets");

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

struct PlanRequest {
  PlanPolicy policy = PlanPolicy::optimal;
  PlanObjective objective = PlanObjective::time;
  double time_limit_s = 0;         // 0: no limit
  std::int64_t evaluations = 400;  // jobs that are simulated at most
  double tokens = 0;               // of the whole run; 0: Train::tokens
  double deadline_s = 0;           // most seconds of the whole run; 0: none
  double budget_usd = 0;           // most rent of the whole run; 0: none
  PlanPins pins;
  std::vector<Ablation> ablate;
  bool operator==(const PlanRequest&) const = default;
};

}  // namespace motley
