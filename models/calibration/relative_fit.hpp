// Fits times that are sums of parts (a latency, seconds for each byte, ...) so that relative errors are least, and says
// how wrong such a fit is on points that it has not seen. Read next: models/calibration/kernel_fit.hpp.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

namespace motley {

// One measured time: for each part how much of it there was, divided by the measured seconds.
struct RelativePoint {
  std::vector<double> amounts;
};
// Makes a point. `amounts`: of each part; 1 for a part that each time has once.
RelativePoint relative_point(std::vector<double> amounts, double seconds);

using Parts = unsigned;  // a bit for each part that is fitted
constexpr Parts part_bit(std::size_t part) { return 1U << part; }
constexpr bool has_part(Parts parts, std::size_t part) { return (parts & part_bit(part)) != 0; }

// |predicted / measured - 1|. `seconds`: of each part, for an amount of 1.
double relative_error(const std::vector<double>& seconds, const RelativePoint& point);

// Seconds of each part; 0 for those that are not fitted. They have the least sum of relative errors, in which no point
// counts much more than another however far it is off. None: the points do not tell the parts apart, or a part would
// be negative.
std::optional<std::vector<double>> fit_parts(const std::vector<RelativePoint>& points, Parts parts);

struct HeldOutError {
  double mean = std::numeric_limits<double>::infinity(),
         worst = mean;  // infinite: some points cannot be fitted
};
// Each point predicted by a fit to others: all others where they are few, else those of other folds.
HeldOutError held_out_error(const std::vector<RelativePoint>& points, Parts parts);

inline constexpr std::size_t kFewestHeldOut = 3;  // points of which one can be held out
// The parts, of those that are possible, whose fit is best on held-out points; with too few points, `alone`.
Parts best_parts(const std::vector<RelativePoint>& points, Parts possible, Parts alone);

}  // namespace motley
