// What the stages of pipelines in a V have in flight, how many layers they have memory for, and what a step takes under
// a schedule's own timetable. Read next: models/plan/v_search.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/plan/layer_shares.hpp"
#include "models/plan/partial_recompute.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/pipeline_search.hpp"
#include "models/plan/stage_price.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {

inline constexpr int kChunksInV = 2;  // of each stage

// What a stage has in flight, in micro-batches of all its layers.
struct InFlight {
  double kept = 0;     // whose backward has not begun
  double put_off = 0;  // whose gradients of weights are still to come
  double begun = 0;    // whose gradients of inputs are under way
  // Bytes beyond those of `kept`, as parts of what a micro-batch keeps.
  double beyond_kept(const PutOffShares& shares) const { return shares.each * put_off + shares.once * begun; }
};

// The peak of a stage in the order of its rank's actions. `layers`: of each of its chunks. `shares`: what is put off
// keeps.
InFlight peak_in_flight(const std::vector<Action>& actions, int stage,
                        const std::vector<std::int64_t>& layers, const PutOffShares& shares);

// A stage with some number of layers: those that recompute, and how.
struct RecomputedPart {
  Recompute recompute;
  std::int64_t layers = 0;
};
// The stages of a class, by their number of layers.
using RecomputedParts = std::vector<RecomputedPart>;

// Stages of pipelines of one job in a V. Their figures are those of StagePricer.
class VStages {
 public:
  VStages(const Job& job, StagePricer& pricer) : job_(job), pricer_(pricer), estimator_(job, pricer) {}

  // Under zb-v a stage keeps at most 2 p chunks in flight, under dualpipe-v 2 p + 1.
  static InFlight usual_in_flight(std::int64_t micro_batches, std::int64_t stages);
  // Whether a stage needs more bytes with `a` than with `b`.
  bool is_more(const InFlight& a, const InFlight& b, const StageWay& way) const;

  // Notes what a stage of the class takes with as many layers as fit the chip and take `most_s` at most, of which as
  // few recompute as must. Returns these. Empty: not even one layer for each chunk fits. `shape`: its micro-batch and
  // its replicas count. `way`: without recompute.
  RecomputedParts limit_by_memory(StageClass& stage, const StageWay& way, const PlannedPipeline& shape,
                                  const InFlight& in_flight, bool is_first, double most_s,
                                  bool may_recompute) const;
  // Whether all stages have memory for their layers. `in_flight`: of each stage.
  bool fits(const PlannedPipeline& pipeline, const std::vector<InFlight>& in_flight) const;

  struct Timed {
    double step_s = 0;
    std::vector<InFlight> in_flight;  // of each stage
  };
  // A step under the pipeline's schedule. Nothing: the schedule cannot be made.
  std::optional<Timed> timed_step(const PlannedPipeline& pipeline) const;
  // Seconds in which the slowest stage reduces gradients, updates parameters and gathers them.
  double update_s(const PlannedPipeline& pipeline) const;

 private:
  PartialBytes stage_bytes(const StageWay& way, const PlannedPipeline& shape,
                           const InFlight& in_flight) const;
  // PassTimes::held_for_weights of a chunk with so many layers, of which the first ones recompute.
  double held_for_weights(const StageWay& way, const PlannedPipeline& shape, std::int64_t layers,
                          std::int64_t recomputed) const;

  const Job& job_;
  StagePricer& pricer_;
  PipelineEstimator estimator_;
};

}  // namespace motley
