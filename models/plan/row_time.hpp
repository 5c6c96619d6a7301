// What the stages of a row of groups take at least, whatever layers each of them holds: it tells which rows cannot be
// among the best before their layers are divided. Read next: models/plan/pipeline_search.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/plan/stage_price.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {

// The least that the stages of some segments take.
struct RowTime {
  struct Segment {
    double stages = 0, layer_s = 0;  // most stages; least seconds of a layer
  };
  std::vector<Segment> segments;  // the fastest layers first
  double layers = 0, ends_s = 0;  // of the model; least seconds of embedding and head
  double longest_s = 0;           // no stage takes longer
  double weights_share = 0;       // of a layer, at most, in the gradients of the weights
  // Seconds of the gradients of embedding and head beyond that share of theirs, at most: a stage may hold both.
  double ends_weights_s = 0;
  // What one micro-batch takes in all stages, if none takes more than `most_s`: the fastest segments are filled
  // first. Infinite: so short stages cannot hold the model.
  double all_s(double most_s) const;
  // The longest stage that a pipeline may have to take less than `cut_s` by its closed form, whatever its transfers and
  // gradients take. 0: no pipeline on these segments takes less.
  double longest_stage_s(Schedule schedule, int chunks, double micro_batches, double cut_s) const;

 private:
  // The same where backwards are split; `most_s`: no stage takes longer.
  double longest_split_s(double micro_batches, double cut_s, double most_s) const;
};

// Stages that a segment of a row may have.
struct RowPart {
  std::int64_t stages = 0;
  const StageSeconds* seconds = nullptr;  // of a stage that recomputes nothing
  double longest_s = 0;                   // of one that holds the whole model, whatever it recomputes
};
RowTime row_time(std::span<const RowPart> parts, std::int64_t layers);

}  // namespace motley
