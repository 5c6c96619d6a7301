// What the stages of a row of groups take at least, whatever layers each of them holds: it tells which rows cannot be
// among the best before their layers are divided. Read next: models/plan/pipeline_search.cpp.
#pragma once

#include <vector>

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
  // What one micro-batch takes in all stages, if none takes more than `most_s`: the fastest segments are filled
  // first. Infinite: so short stages cannot hold the model.
  double all_s(double most_s) const;
  // The longest stage that a pipeline may have whose backwards are split, to take no more than `cut_s` by
  // split_backward_s(); `most_s`: no stage takes longer.
  double longest_split_s(double micro_batches, double cut_s, double most_s) const;
};

}  // namespace motley
