#include "models/plan/row_time.hpp"

#include <algorithm>
#include <limits>

namespace motley {

double RowTime::all_s(double most_s) const {
  double sum_s = ends_s, left = layers;
  for (const Segment& segment : segments) {
    const double here = std::min(left, segment.stages * most_s / segment.layer_s);
    sum_s += here * segment.layer_s;
    left -= here;
  }
  return left > 1e-9 * layers ? std::numeric_limits<double>::infinity() : sum_s;
}

double RowTime::longest_split_s(double micro_batches, double cut_s, double most_s) const {
  double stages = 0;
  for (const Segment& segment : segments) stages += segment.stages;
  const double put_off = std::min({micro_batches, stages - 1, layers - 1});
  const double passed_share = 1 - weights_share, passed_s = passed_share * (all_s(most_s) - ends_s);
  const double each = micro_batches - passed_share - put_off * weights_share;
  return each > 0 ? (cut_s - passed_s) / each : most_s;
}

}  // namespace motley
