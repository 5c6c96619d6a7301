// A fixed piece of work whose time tells whether a machine keeps still: products that stay in the nearest cache, and a
// pass over memory. Read next: models/calibration/stillness.hpp.
#pragma once

#include <vector>

namespace motley {

class Sentinel {
 public:
  Sentinel();
  // The least of several times, in seconds: about 10 ms in all.
  double time();

 private:
  std::vector<float> a_, b_, c_, memory_;
};

}  // namespace motley
