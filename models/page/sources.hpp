// The figures that a prediction uses, each with the source that its file gives. Read next: models/cluster/sourced.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/report/report.hpp"
#include "models/scenario/scenario.hpp"

namespace motley {

struct UsedFigure {
  std::string part;  // "a100-80gb-sxm", "node group `gpu`", "the interval"
  std::string figure, value, source;
};

// Figures of the chips on which ranks stand, of the groups and links of the cluster, of the interval.
std::vector<UsedFigure> used_figures(const Scenario& scenario, const Program& program, const Report& report);

}  // namespace motley
