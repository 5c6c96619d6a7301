// The median of some numbers. Read next: models/published/prediction_errors.hpp, models/calibration/kernel_samples.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace motley {

inline double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace motley
