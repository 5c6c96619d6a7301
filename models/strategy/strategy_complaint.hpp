// What is impossible about a strategy, and about which key: so that whoever read it from a file can
// point at the line. Read next: models/strategy.hpp.
#pragma once

#include <optional>
#include <string>

#include "models/strategy.hpp"

namespace motley {

struct StrategyComplaint {
  std::string kind;  // of the Refusal it becomes
  // "tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel", "micro_batch", "sequence",
  // "templates", "stages", "micro_batches", "schedule"
  std::string about;
  std::string message;
  std::string hint;
};

// What concerns what is trained and its shape alone: "sequence", "documents", "micro_batch" or
// "extra_prediction_weight".
std::optional<StrategyComplaint> find_batch_complaint(const Transformer&, const Train&);

// The first thing that makes it impossible; nothing: it is legal.
std::optional<StrategyComplaint> find_complaint(const Transformer&, const Train&, std::int64_t tp,
                                                std::int64_t pp, std::int64_t dp, std::int64_t cp = 1);
std::optional<StrategyComplaint> find_complaint(const Transformer&, const Train&, const Strategy&);

// What is impossible about dividing this stage's experts: "stages". The stage's tensor_parallel is legal.
std::optional<StrategyComplaint> find_in_expert_parallel(const Transformer&, const PipelineTemplate&,
                                                         const Stage&);

// What stands against `overlap: {experts: true}` in this pipeline: "schedule", "zero" or "templates".
std::optional<StrategyComplaint> find_in_expert_overlap(const Strategy&, const PipelineTemplate&);

// What the strategy's schedule asks for and this pipeline does not give: "schedule". The pipeline's stages hold its
// layers.
std::optional<StrategyComplaint> find_in_schedule(const Strategy&, const PipelineTemplate&);

}  // namespace motley
