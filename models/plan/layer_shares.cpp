#include "models/plan/layer_shares.hpp"

#include <algorithm>

#include "models/base/index.hpp"

namespace motley {

double StageClass::seconds(std::int64_t held) const {
  if (with_layers.empty()) return once_s + static_cast<double>(held) * layer_s;
  return with_layers[at(held)];
}

double share_out(std::vector<StageClass>& classes, std::int64_t layers, std::int64_t least) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double longest_s = 0;
  for (StageClass& each : classes) {
    if (each.most_layers < least) return kNever;
    each.layers = least;
    each.more = 0;
    layers -= least * each.stages;
    if (least > 0) longest_s = std::max(longest_s, each.seconds(least));
  }
  if (layers < 0) return kNever;
  while (layers > 0) {
    StageClass* shortest = nullptr;
    double shortest_s = kNever;
    for (StageClass& each : classes) {
      if (each.layers >= each.most_layers) continue;
      const double seconds = each.seconds(each.layers + 1);
      if (seconds >= shortest_s) continue;
      shortest = &each;
      shortest_s = seconds;
    }
    if (shortest == nullptr) return kNever;
    longest_s = std::max(longest_s, shortest_s);
    if (layers < shortest->stages)
      shortest->more = layers;
    else
      ++shortest->layers;
    layers -= shortest->stages;
  }
  return longest_s;
}

double longest_of_parts_s(const std::vector<StageClass>& classes, std::int64_t layers) {
  double rate = 0,
         sum = static_cast<double>(layers);  // layers a second; layers, and what stages take beside these
  for (const StageClass& each : classes) {
    rate += static_cast<double>(each.stages) / each.layer_s;
    sum += static_cast<double>(each.stages) * each.once_s / each.layer_s;
  }
  return sum / rate;
}

double round_trip_s(const std::vector<StageClass>& classes) {
  double sum_s = 0;
  for (const StageClass& each : classes)
    sum_s += static_cast<double>(each.stages * each.layers + each.more) * each.layer_s * each.passed_on_share;
  return sum_s;
}

}  // namespace motley
