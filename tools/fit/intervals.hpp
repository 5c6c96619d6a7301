// How far measurements lie from predictions that were fitted without them, as intervals that also hold 80 % of the runs
// of other groups. Read next: models/scenario/interval.hpp.
#pragma once

#include <string>
#include <vector>

namespace motley::fit {

// A run: `value` is measured over predicted, `set` its set, `group` the runs that were left out to predict it.
struct Ratio {
  double value = 1;
  std::string set, group;
};
struct Bounds {
  double low = 1, high = 1;
};
struct HeldBounds {
  Bounds bounds;
  double held = 0;  // the share of runs that lie inside bounds made in the same way from all other groups
};

// Bounds with the share `tail` of the runs below them and the same share above. Once all rows have the same weight,
// once all sets have; the result is the wider of the two on each side.
Bounds bounds_of(const std::vector<Ratio>& ratios, double tail);
// Bounds whose tails are so small that intervals made in the same way from all other groups hold 80 % of the runs of a
// group. Plain quantiles of these runs would hold 80 % of them in any case, and so prove nothing.
HeldBounds interval_of(const std::vector<Ratio>& ratios);

}  // namespace motley::fit
