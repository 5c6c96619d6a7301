// A bound that no strategy's step can pass: all kernels of the model, for all sequences, on all chips at once. Read
// next: models/plan/planner.hpp.
#pragma once

#include <vector>

#include "models/plan/stage_price.hpp"

namespace motley {

// Seconds that the job's step takes at least, whatever its strategy. Nothing is recomputed, nothing is sent, no chip
// waits, and every kernel runs in the shape that suits its chip best. With prices p of the groups' chips, of which all
// together cost 1, T >= sum over layers of (sequences x the least p x chip-seconds of the layer): linear programming's
// dual, so that a group may have the layers that it is best at.
double work_bound_s(const Job& job, StagePricer& pricer);

}  // namespace motley
