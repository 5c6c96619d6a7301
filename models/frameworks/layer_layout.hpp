// Layers over stages, as frameworks write them: Megatron-LM's layout ("Et*3|(tt|)*29,m|L") and its lists of ones and
// zeros by layer ("([0]*3+[1]*58)"). Read next: megatron_import.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"

namespace motley {

// Counts of layers by virtual stage, in V-major order: the order of the layers.
struct LayerLayout {
  std::vector<std::int64_t> layers;
  std::int64_t extra = 0;  // layers that predict further tokens (m), in the last virtual stage
};

// Reads a layout for `stages` pipeline stages, and refuses ("bad-layout") one that Megatron-LM would refuse, or that
// has layers where Motley can have none. `layers`, `extra`: what it must hold in all.
LayerLayout parse_layout(const std::string& text, const Location& where, std::int64_t stages,
                         std::int64_t layers, std::int64_t extra);

// Reads a whole number N, or a list expression of ones and zeros. A number stands for the list in which every N-th
// layer is 1, counted from layer `first`. Refuses ("bad-layer-pattern") other text, and a list of another length.
std::vector<bool> parse_layer_pattern(const std::string& text, const Location& where, std::int64_t layers,
                                      std::int64_t first);

}  // namespace motley
