// A picture of a sweep. With a front of two measures: one over the other, the front as a line. Otherwise the step over
// the first key that varies, one line for each combination of the others, with the likely interval where there is one
// line. Read next: models/sweep/sweep_table.hpp.
#pragma once

#include <string>

#include "models/sweep/sweep_table.hpp"

namespace motley {

// SVG, or a page that holds it. Every point says its row when the mouse is over it.
std::string plot_of(const SweepTable& table, bool as_page);

}  // namespace motley
