// Stages that recompute their first layers and keep everything of the others: their bytes and seconds, from the prices
// of stages that recompute nothing and of those that recompute all. Read next: models/plan/stage_price.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "models/plan/pipeline_search.hpp"
#include "models/plan/stage_price.hpp"

namespace motley {

// Where in a pipeline a stage stands.
struct StagePosition {
  double in_flight = 1;  // micro-batches
  bool is_first = false, is_last = false;
  int chunks = 1;  // each recomputes as many layers at its beginning
  double first_in_flight =
      1;  // micro-batches of the first chunk, which has most in flight and as many layers as any
  // False: gradients of weights are put off, so that a backward frees nothing for those after it.
  bool frees_layers = true;
};

struct PartialBytes {
  StageBytes kept, again;  // of a stage that recomputes nothing; of one that recomputes all

  // Bytes of a stage that recomputes so many of its layers, at their peak. While all layers of a chunk are kept,
  // nothing is computed again; when the first layers are, the others of that micro-batch are gone.
  double peak(std::int64_t layers, std::int64_t recomputed, const StagePosition& position) const;
  bool fits(std::int64_t layers, std::int64_t recomputed, const StagePosition& position) const;
  // The least number of layers to recompute, so that the stage fits; the same in each chunk, or all. Nothing: there is
  // none.
  std::optional<std::int64_t> least_recomputed(std::int64_t layers, const StagePosition& position) const;
  // Bytes that no stage has more than, however many of its layers it recomputes, if it recomputes any.
  StageBytes least() const;
};

// A stage whose layers recompute in one way or not at all.
struct PartialStage {
  const StageSeconds& kept;   // of a stage that recomputes nothing
  const StageSeconds& again;  // of one that recomputes all
  PartialBytes bytes;

  struct Part {
    std::int64_t first = 0, last = 0;  // layers [first, last)
    std::int64_t recomputed = 0;       // of them
    PassSeconds passes;
  };
  // Seconds of layers [first, last) of which the first ones recompute.
  PassSeconds of_layers(std::int64_t first, std::int64_t last, std::int64_t recomputed) const;
  // Layers [first, last) with as few recomputed as fit. Nothing: they do not fit. The position's ends do not count.
  std::optional<Part> with_least_recompute(std::int64_t first, std::int64_t last,
                                           const StagePosition& position) const;
  // The most layers to `last` that fit and take at most `most_s`, of those that begin in that range, its end included.
  // Nothing: there are none.
  std::optional<Part> most_layers(Layers begins, std::int64_t last, double most_s,
                                  const StagePosition& position) const;
};

// The first layer, from `first` on, from which layers to `last` take at most `most_s`; `last`: there is none.
std::int64_t first_in_time(const StageSeconds& seconds, std::int64_t first, std::int64_t last, double most_s);
// The first layer from which layers to `last` fit; `last`: there is none. The position's ends do not count.
std::int64_t first_that_fits(const StageBytes& bytes, std::int64_t last, const StagePosition& position,
                             std::int64_t layers);

// The stage of a pipeline, as it is priced. Nothing: it is impossible.
std::optional<PartialStage> partial_stage(const PlannedPipeline& pipeline, const PlannedStage& stage,
                                          StagePricer& pricer);
// Layers that such a stage recomputes.
std::int64_t recomputed_layers(const PlannedPipeline& pipeline, const PlannedStage& stage);

// The part as a stage of so many chunks.
PlannedStage planned_stage(StageWay way, const PartialStage::Part& part, int chunks);

// The pipeline with as many layers recomputed in each stage as in the one that recomputes most, for those who cannot
// say more. Nothing: it recomputes alike as it is.
std::optional<PlannedPipeline> recomputing_alike(const PlannedPipeline& pipeline);

}  // namespace motley
