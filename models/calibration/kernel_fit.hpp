// Fits the speed of each kind of kernel to samples of it, and says how wrong the fit is on shapes that it has not
// seen. Read next: models/cluster/kernel_rates.hpp, models/calibration/kernel_samples.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/calibration/kernel_samples.hpp"
#include "models/cluster/kernel_rates.hpp"

namespace motley {

// How well one kind of kernel is fitted. Errors are |predicted / measured - 1|.
struct OpFit {
  KernelOp op = KernelOp::embed;
  KernelRate rate;
  std::int64_t shapes = 0;
  double mean_error = 0, worst_error = 0;  // of the samples that were fitted
  // The same, each shape predicted by a fit to the others. None: there are fewer than three shapes.
  std::optional<double> held_out_mean, held_out_worst;
};

struct KernelFit {
  std::vector<OpFit> ops;  // by op
  KernelRates rates;       // `source` is the caller's
};

// Each rate has the least mean square of relative errors; a part of it (overhead, flops, bytes) that does not lower the
// error on held-out shapes is left out.
KernelFit fit_kernels(const Samples& samples);

}  // namespace motley
