// Shares the layers of a model out among the stages of a pipeline whose order does not matter, so that the longest
// stage is as short as can be. Read next: models/plan/v_search.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace motley {

// Stages that are alike, and the layers that they were given.
struct StageClass {
  std::size_t segment = 0;
  std::int64_t stages = 0;
  double once_s = 0, layer_s = 0;  // of a micro-batch: whatever a stage holds; each layer
  double passed_on_share = 1;      // of a layer's seconds, at least: what other stages wait for
  std::int64_t most_layers = std::numeric_limits<std::int64_t>::max();
  // Seconds of a stage with so many layers, where these are no line because some layers recompute; never less than with
  // fewer. Empty: `once_s` and `layer_s` tell.
  std::vector<double> with_layers = {};

  std::int64_t layers = 0, more = 0;  // of each stage; one more of the first `more` ones
  double seconds(std::int64_t held) const;
};

// Gives each layer to the stage that is the shortest with it, of those that may hold it; `least` layers a stage at
// least. Returns what the longest stage takes, of those that hold any. Infinite: the stages cannot hold the layers.
double share_out(std::vector<StageClass>& classes, std::int64_t layers, std::int64_t least);

// No share_out() returns less, where `with_layers` is empty: stages may hold parts of layers.
double longest_of_parts_s(const std::vector<StageClass>& classes, std::int64_t layers);

// What a micro-batch takes through all stages and back, at least, once layers are shared out.
double round_trip_s(const std::vector<StageClass>& classes);

}  // namespace motley
