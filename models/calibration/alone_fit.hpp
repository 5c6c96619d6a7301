// What kernels take where their rank computes alone on its node, compared with the same kernels among busy ranks. Read
// next: models/cluster/kernel_rates.hpp.
#pragma once

#include <cstdint>

#include "models/calibration/kernel_samples.hpp"
#include "models/cluster/kernel_rates.hpp"

namespace motley {

struct AloneFit {
  double share = 0;         // of all kernels together; 0: no shape was measured both ways
  std::int64_t shapes = 0;  // that were measured both ways
};

// Writes `busy` and, where shapes were measured both ways, `alone` into the rates, the latter also for each kind that
// has enough such shapes. A kind that was slower alone, which only noise can do, counts as equally fast. `ranks`: that
// were busy at once.
AloneFit fit_alone(const Samples& among, const Samples& alone, std::int64_t ranks, KernelRates& rates);

}  // namespace motley
