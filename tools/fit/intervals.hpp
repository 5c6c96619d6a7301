// How far measurements lay from predictions that were made without them, as intervals that hold 80 % of runs of other
// groups too. Read next: models/scenario/interval.hpp.
#pragma once

#include <string>
#include <vector>

namespace motley::fit {

// A run: what was measured over what was predicted, its set, and the group it was predicted without.
struct Ratio {
  double value = 1;
  std::string set, group;
};
struct Bounds {
  double low = 1, high = 1;
};
struct HeldBounds {
  Bounds bounds;
  double held = 0;  // the share of runs that bounds held which were made so of the other groups
};

// So much of the runs lies below, and above: by rows that count alike and by sets that do, whichever is wider.
Bounds bounds_of(const std::vector<Ratio>& ratios, double tail);
// Not the quantiles of these runs themselves, which hold their 80 % whatever they are: tails are cut so far out that
// intervals made in the same way of all other groups hold 80 % of the runs.
HeldBounds interval_of(const std::vector<Ratio>& ratios);

}  // namespace motley::fit
