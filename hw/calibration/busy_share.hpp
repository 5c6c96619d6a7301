// Whether this host's processors are free: as many processes as ranks compute at once for a moment. Read next:
// models/calibration/stillness.hpp.
#pragma once

#include <cstdint>

namespace motley {

// The least share of `seconds` that one of so many processes was on a processor. The caller must be single-threaded.
double least_share_on_processor(std::int64_t processes, double seconds);

}  // namespace motley
