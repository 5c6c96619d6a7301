// Whether a machine kept still while something was measured on it. Read next: hw/calibration/sentinel.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace motley {

// What was seen around one measurement.
struct Surroundings {
  double before_s = 0, after_s = 0;  // the sentinel's time before and after it
  double share_on_processor = 1;     // the least of the processes that were measured
  double taken_s = 0;                // stolen or throttled meanwhile, by all processors
  double seconds = 0;                // that the measurement took
};

// Judges measurements one after the other. The sentinel is a fixed piece of work: its least times tell how fast the
// machine is when it is left alone.
class Stillness {
 public:
  // Empty: the machine kept still. Else the reason why what was measured does not count.
  std::string judge(const Surroundings& seen);
  // The sentinel's usual time: the median of the times that were not disturbed; 0 before the first.
  double usual_s() const;
  // Half of the middle half of the times, as a share of the usual one: how far equal work is apart. 0 before the
  // fourth.
  double noise() const;

 private:
  std::vector<double> sentinels_;  // ascending
};

// These throw Refusal("never-still"), where all measurements were disturbed, or too many one after the other. `last`:
// what disturbed the last one.
[[noreturn]] void refuse_all_disturbed(std::int64_t measurements, std::int64_t busy_ranks,
                                       const std::string& last);
[[noreturn]] void refuse_disturbed(const std::string& probe, int before, const std::string& last);

}  // namespace motley
