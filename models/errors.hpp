// Errors in percent, of several predictions of one sort: how large they are, and which way they lean. Read next:
// models/collective_errors.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace motley {

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
  double bias() const {
    double sum = 0;
    for (double pct : pct_) sum += pct;
    return pct_.empty() ? 0 : sum / static_cast<double>(pct_.size());
  }
  double mean() const {
    double sum = 0;
    for (double pct : pct_) sum += std::abs(pct);
    return pct_.empty() ? 0 : sum / static_cast<double>(pct_.size());
  }
  double median() const {
    std::vector<double> sizes;
    for (double pct : pct_) sizes.push_back(std::abs(pct));
    if (sizes.empty()) return 0;
    std::sort(sizes.begin(), sizes.end());
    const std::size_t half = sizes.size() / 2;
    return sizes.size() % 2 == 1 ? sizes[half] : (sizes[half - 1] + sizes[half]) / 2;
  }
  double worst() const { return worst_; }  // with its sign
  const std::string& worst_id() const { return worst_id_; }

 private:
  std::vector<double> pct_;
  double worst_ = 0;
  std::string worst_id_;
};

}  // namespace motley
