// Fits the speed of each kind of kernel to samples of it, and says how wrong the fit is on shapes that it has not
// seen. Read next: models/cluster/kernel_rates.hpp, models/calibration/kernel_samples.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/calibration/kernel_samples.hpp"
#include "models/cluster/kernel_rates.hpp"

namespace motley {

// How well one kind of kernel is fitted. Errors are |predicted / measured - 1|.
struct OpFit {
  RatedKernel kernel;
  KernelRate rate;
  double seconds = 0;  // of all its samples, each time that they ran: how much it matters
  std::int64_t shapes = 0;
  double mean_error = 0, worst_error = 0;  // of the samples that were fitted
  // The same, each shape predicted by a fit to others. None: there are fewer than three shapes.
  std::optional<double> held_out_mean, held_out_worst;
};

struct KernelFit {
  std::vector<OpFit> ops;  // by kernel
  KernelRates rates;       // `source` and `library` are the caller's
};

// Each rate has the least mean relative error, in which no shape counts much more than another however far it is off;
// a part of it (overhead, flops, bytes, pairs) that does not lower the error on held-out shapes is left out. Throws
// Refusal("two-formats") at `where` if samples differ in format.
KernelFit fit_kernels(const Samples& samples, const Location& where = {});

// Four digits: more than any measurement has, and a person reads them. 0 where the value is not positive.
double rounded(double value);

}  // namespace motley
