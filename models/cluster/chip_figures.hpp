// The figures of a chip that were given, as rows of a table for people. Read next: models/cluster/chip.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/cluster/chip.hpp"

namespace motley {

struct ChipFigure {
  std::string key, value, source;  // "gemm_efficiency", "0.94", "fit to published step times, 2026-11"
};

// In the order of print(). Figures that were not given are left out.
std::vector<ChipFigure> list_figures(const Chip& chip);

}  // namespace motley
