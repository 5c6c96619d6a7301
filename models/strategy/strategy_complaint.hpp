// The reason why a strategy is impossible, and the key that causes it, so that a reader of files can point at the
// line. Read next: models/strategy/strategy.hpp.
#pragma once

#include <optional>
#include <string>

#include "models/base/refusal.hpp"
#include "models/strategy/strategy.hpp"

namespace motley {

struct StrategyComplaint {
  std::string kind;  // the kind of the Refusal that is made from it
  // The key: "tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel", "micro_batch", "sequence",
  // "templates", "stages", "micro_batches", "schedule".
  std::string about;
  std::string message;
  std::string hint;
  RefusalSite site = RefusalSite::here();
};

// Finds the first impossible thing that no strategy could mend: about "sequence", "documents", "micro_batch" or
// "extra_prediction_weight".
std::optional<StrategyComplaint> find_batch_complaint(const Transformer&, const Train&);

// Finds the first thing that makes a strategy of these degrees, or this strategy, impossible. Nothing: it is legal.
std::optional<StrategyComplaint> find_complaint(const Transformer&, const Train&, std::int64_t tp,
                                                std::int64_t pp, std::int64_t dp, std::int64_t cp = 1);
std::optional<StrategyComplaint> find_complaint(const Transformer&, const Train&, const Strategy&);

// Finds why this stage's experts cannot be divided as it says, about "stages". The stage's tensor_parallel must be
// legal.
std::optional<StrategyComplaint> find_in_expert_parallel(const Transformer&, const PipelineTemplate&,
                                                         const Stage&);

// Finds why this pipeline cannot have `overlap: {experts: true}`, about "schedule", "zero" or "templates".
std::optional<StrategyComplaint> find_in_expert_overlap(const Strategy&, const PipelineTemplate&);

// Finds a condition of the strategy's schedule that this pipeline does not meet, about "schedule". The pipeline's
// stages must hold all its layers.
std::optional<StrategyComplaint> find_in_schedule(const Strategy&, const PipelineTemplate&);

}  // namespace motley
