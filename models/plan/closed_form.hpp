// Judges one pipeline of equal replicas by closed forms: what a step takes under 1F1B, interleaved or zb_h1, and
// whether its stages have memory for their layers. It proposes nothing; searches compare pipelines by it. Read next:
// models/plan/pipeline_search.hpp, models/plan/least_pipeline.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "models/plan/partial_recompute.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/pipeline_search.hpp"
#include "models/plan/stage_price.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// Parameters of the last layer, which has experts if the model has any: in its experts, and in the rest.
struct LayerParameters {
  double in_experts = 0, rest = 0;
};
LayerParameters parameters_of_layer(const Transformer& transformer);

// Micro-batches that a stage with so many behind it has in flight, as 1F1B and its interleaved form warm up
// (arXiv:2104.04473). `stages`: of the pipeline.
double in_flight_before(const PlannedPipeline& shape, std::int64_t stages, std::int64_t behind);

// The same as a position, whose ends are not said.
StagePosition position_of(const PlannedPipeline& shape, std::int64_t stages, std::int64_t behind);

// `shape` is a pipeline whose stages do not matter: its schedule, its chunks, its replicas and their parts.
class ClosedForm {
 public:
  ClosedForm(const Job& job, StagePricer& pricer);

  // Seconds of a step: m times the longest stage, plus the others, plus gradients, as PlannedPipeline::estimate_s says.
  // Nothing: a stage cannot be run so, or has no memory for its layers, or the schedule does not allow the stages.
  std::optional<double> step_s(const PlannedPipeline& pipeline) const;

  // The stage as it is priced, with the bytes that it has with so many stages behind it in a pipeline of `stages`.
  // Nothing: it is impossible.
  std::optional<PartialStage> stage_at(const PlannedPipeline& shape, const PlannedStage& stage,
                                       std::int64_t stages, std::int64_t behind) const;
  // Seconds in which a stage's replicas reduce gradients and gather parameters.
  double gradients_s(const PlannedPipeline& shape, const StageWay& way, std::int64_t layers) const;
  // Bytes of a stage with so many behind it in a pipeline of `stages`; zb_h1 puts off as many weights' gradients as
  // leave p in flight.
  StageBytes bytes(const PlannedPipeline& shape, const StageWay& way, const StageBytes& priced,
                   std::int64_t stages, std::int64_t behind) const;

  const PipelineEstimator& estimator() const { return estimator_; }
  const LayerParameters& parameters() const { return parameters_; }

 private:
  const Job& job_;
  StagePricer& pricer_;
  PipelineEstimator estimator_;
  LayerParameters parameters_;
};

}  // namespace motley
