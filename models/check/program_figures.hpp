// Whether the figures of a Program can be counted with. Those of a Program that compile() made always can; its text may
// have been edited. Read next: models/check/check.hpp.
#pragma once

#include "models/program/program.hpp"

namespace motley {

// Refuses ("broken-program") a figure that is negative where a count or a size stands, or so large that a sum or a
// product of them would not fit an int64: degrees, batches, shapes, bytes, and the sums of bytes of each rank.
void check_figures(const Program& program);

}  // namespace motley
