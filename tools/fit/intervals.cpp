#include "tools/fit/intervals.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "models/base/refusal.hpp"
#include "models/scenario/interval.hpp"

namespace motley::fit {
namespace {

// The first value at which the sum of the weights reaches `share` of the total.
double quantile(const std::vector<std::pair<double, double>>& sorted, double total, double share) {
  double sum = 0;
  for (const auto& [value, weight] : sorted) {
    sum += weight;
    if (sum / total >= share) return value;
  }
  return sorted.back().first;
}

Bounds quantiles(std::vector<std::pair<double, double>> weighted, double tail) {
  MOTLEY_CHECK(!weighted.empty());
  std::stable_sort(weighted.begin(), weighted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  double total = 0;
  for (const auto& [value, weight] : weighted) total += weight;
  return {quantile(weighted, total, tail), quantile(weighted, total, 1 - tail)};
}

}  // namespace

Bounds bounds_of(const std::vector<Ratio>& ratios, double tail) {
  std::map<std::string, double> rows;
  for (const Ratio& each : ratios) ++rows[each.set];
  std::vector<std::pair<double, double>> sets_alike, rows_alike;
  for (const Ratio& each : ratios) {
    sets_alike.emplace_back(each.value, 1 / rows[each.set]);
    rows_alike.emplace_back(each.value, 1);
  }
  const Bounds by_set = quantiles(std::move(sets_alike), tail),
               by_row = quantiles(std::move(rows_alike), tail);
  return {std::min(by_set.low, by_row.low), std::max(by_set.high, by_row.high)};
}

HeldBounds interval_of(const std::vector<Ratio>& ratios) {
  std::set<std::string> groups;
  for (const Ratio& each : ratios) groups.insert(each.group);
  HeldBounds held_bounds;
  for (const double tail : {0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01}) {
    std::size_t inside = 0;
    for (const std::string& group : groups) {
      std::vector<Ratio> own, others;
      for (const Ratio& each : ratios) (each.group == group ? own : others).push_back(each);
      if (others.empty()) continue;
      const Bounds bounds = bounds_of(others, tail);
      for (const Ratio& each : own) inside += bounds.low <= each.value && each.value <= bounds.high ? 1 : 0;
    }
    held_bounds = {bounds_of(ratios, tail), static_cast<double>(inside) / static_cast<double>(ratios.size())};
    if (held_bounds.held >= kIntervalShare) break;
  }
  return held_bounds;
}

}  // namespace motley::fit
