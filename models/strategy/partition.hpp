// The number of layers in each stage of a pipeline: even, in proportion to the stages' speeds (Holmes's self-adapting
// partition, arXiv:2312.03549), or given as a list. Read next: models/strategy/strategy.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace motley {

// Each stage gets floor(alpha * its speed / the sum of speeds * layers), at least one layer, and the last stage takes
// the rest. Speeds are in any unit, as measured with that stage's chips and NICs. Throws Refusal("impossible-stages")
// if there are fewer layers than stages.
// Assumes: alpha 1, as in the examples that Holmes ships (30 layers at 197:160 are 16 and 14, 48 are 26 and 22); its
// paper gives 1.05.
std::vector<std::int64_t> layers_by_speed(std::int64_t layers, std::span<const double> speeds,
                                          double alpha = 1.0);

// Layers as even as possible: the first `layers % stages` stages get one more.
std::vector<std::int64_t> even_layers(std::int64_t layers, std::int64_t stages);

// Holmes's list "2 4 4 3 5 5 5": for each type of device the number of its stages, and the layers of each.
struct HeteroStages {
  std::vector<std::vector<std::int64_t>> layers_by_type;
  std::int64_t stages() const;
  std::int64_t layers() const;
};
// Reads such a list. Throws Refusal("impossible-stages").
HeteroStages parse_hetero_stages(const std::string& text);

}  // namespace motley
