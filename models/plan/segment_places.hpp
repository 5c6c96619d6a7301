// The stages that segments of a row may have under one shape of pipelines: how many, and in which ways they may run.
// What all orders of some segments have in common is told from them. Read next: models/plan/pipeline_search.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "models/plan/closed_form.hpp"
#include "models/plan/pipeline_rows.hpp"
#include "models/plan/pipeline_search.hpp"
#include "models/plan/stage_price.hpp"

namespace motley {

// Stages that one segment may have, and the ways to run them.
struct SegmentWay {
  StageWay way;
  const StagePrice* price = nullptr;
  bool is_priced = false;  // bytes are counted where they are needed first
};
struct SegmentPlace {
  std::int64_t stages = 0;
  const StageSeconds* seconds = nullptr;  // of a stage that recomputes nothing
  double longest_s = 0;                   // of one that holds the whole model, whatever it recomputes
  std::vector<SegmentWay> ways;           // the more they recompute, the later
};
// `shape` is everywhere a pipeline without stages: the places are those of its replicas and its micro-batch, until they
// are cleared for another one.
class SegmentPlaces {
 public:
  SegmentPlaces(const Job& job, StagePricer& pricer, const ClosedForm& closed_form)
      : job_(job), pricer_(pricer), closed_form_(closed_form) {}

  void clear() { known_.clear(); }
  // Without stages: none can stand there.
  SegmentPlace& at(const PlannedPipeline& shape, const RowSegment& segment);
  // Null: no stage can be run that way.
  const StagePrice* price_of(const PlannedPipeline& shape, SegmentWay& way) const;
  // No pipeline on the segments has a shorter longest stage, in any order: none of its stages recomputes, holds an end
  // of the model, or lacks memory.
  double least_longest_s(const PlannedPipeline& shape, const Row& segments);
  // What pipelines of any order reduce and gather takes no less than this in the closed form, if no stage takes more
  // than `most_s`. Infinite: so short stages cannot hold the model.
  double least_gradients_s(const PlannedPipeline& shape, const Row& segments, double most_s);
  // Whether stages on the segments, of at most `most_s`, may hold all layers in any order. Each stage has those of its
  // segment behind it, or those and all of other segments. `stages`: of all segments.
  bool can_hold_model(const PlannedPipeline& shape, const Row& segments, std::int64_t stages, double most_s);

 private:
  // No stage of the place holds more layers in that time.
  std::int64_t layers_in_time(const SegmentPlace& place, double most_s) const;
  // No stage of the place that has so many behind it holds more layers in that time.
  std::int64_t most_layers(const PlannedPipeline& shape, SegmentPlace& place, std::int64_t stages,
                           std::int64_t behind, double most_s) const;

  const Job& job_;
  StagePricer& pricer_;
  const ClosedForm& closed_form_;
  std::map<std::pair<int, std::int64_t>, SegmentPlace> known_;  // by group and cut
};

}  // namespace motley
