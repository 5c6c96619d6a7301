// Speeds that vary, in the commands that simulate: the step is the mean one, with its percentiles beside it. Read next:
// models/explain/step_spread.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "models/plan/prepare.hpp"
#include "models/report/report.hpp"

namespace motley {

// If the scenario's chips, nodes or NICs vary: simulates what slow ones cost, shows progress, and gives the cluster the
// speeds of its mean step. `draws`: whole draws that are simulated too. Nothing: nothing varies.
// Throws Refusal("nothing-varies") if there are draws to make, but nothing to draw.
std::optional<StepSpread> expect_speeds(Prepared& prepared, std::int64_t draws);

}  // namespace motley
