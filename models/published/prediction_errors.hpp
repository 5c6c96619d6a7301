// Errors of several predictions, in percent: their size, and their bias. Read next:
// models/published/collective_errors.hpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/base/median.hpp"

namespace motley {

inline double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

inline std::string percent(double value) { return fmt::format("{:.1f}", value); }  // without the sign "%"

class Errors {
 public:
  void add(const std::string& id, double predicted, double measured) {
    const double pct = 100 * (predicted / measured - 1);
    if (pct_.empty() || std::abs(pct) > std::abs(worst_)) {
      worst_ = pct;
      worst_id_ = id;
    }
    pct_.push_back(pct);
  }
  std::size_t count() const { return pct_.size(); }
  double bias() const { return mean_of(pct_); }
  double mean() const { return mean_of(sizes()); }
  double median() const { return median_of(sizes()); }
  double worst() const { return worst_; }  // signed
  const std::string& worst_id() const { return worst_id_; }

 private:
  std::vector<double> pct_;
  double worst_ = 0;
  std::string worst_id_;

  std::vector<double> sizes() const {
    std::vector<double> sizes;
    for (double pct : pct_) sizes.push_back(std::abs(pct));
    return sizes;
  }
};

}  // namespace motley
