#include "models/program/expert_load.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "models/program/routing.hpp"

namespace motley {
namespace {

constexpr double kMostSkew = 32;  // the second expert of Zipf's law gets 2^-32 of the first
constexpr int kHalvings = 60;

// The skews at which a load is looked for before it is found exactly. Assumes: between two of them a load neither
// reaches a height and falls again, nor the reverse, by more than anybody minds.
std::vector<double> skews_to_try() {
  constexpr double kStep = 0.02, kEvenlyTo = 2, kFactor = 1.05;
  std::vector<double> skews;
  for (int i = 0; kStep * i < kEvenlyTo; ++i) skews.push_back(kStep * i);
  for (double skew = kEvenlyTo; skew < kMostSkew; skew *= kFactor) skews.push_back(skew);
  skews.push_back(kMostSkew);
  return skews;
}

using Load = std::function<double(double skew)>;

// The least skew in (low, high] that gives the load; only `high` must give it.
double crossing(const Load& load_at, double load, double low, double high) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (load_at(middle) < load ? low : high) = middle;
  }
  return high;
}

// The skew between two others where the load is largest, by thirds.
double summit(const Load& load_at, double low, double high) {
  for (int i = 0; i < 2 * kHalvings; ++i) {
    const double third = (high - low) / 3;
    if (load_at(low + third) < load_at(high - third))
      low += third;
    else
      high -= third;
  }
  return low;
}

}  // namespace

double load_of_busiest(std::span<const std::int64_t> copies, std::int64_t parts) {
  const auto all = std::accumulate(copies.begin(), copies.end(), std::int64_t{0});
  if (all == 0) return 1;
  const std::size_t each = copies.size() / static_cast<std::size_t>(parts);
  std::int64_t most = 0;
  for (std::size_t first = 0; first < copies.size(); first += each) {
    const auto part = copies.subspan(first, each);
    most = std::max(most, std::accumulate(part.begin(), part.end(), std::int64_t{0}));
  }
  return static_cast<double>(most * parts) / static_cast<double>(all);
}

double expected_load(const Experts& experts, const std::vector<DividedLayer>& layers, double skew,
                     std::uint64_t seed) {
  if (layers.empty()) return 1;
  double sum = 0;
  for (const auto& [layer, parts] : layers)
    sum += busiest_share(experts, parts, skew, seed, layer) * static_cast<double>(parts);
  return sum / static_cast<double>(layers.size());
}

SkewOfLoad skew_of_load(const Experts& experts, const std::vector<DividedLayer>& layers, std::uint64_t seed,
                        double load) {
  const Load load_at = [&](double skew) { return expected_load(experts, layers, skew, seed); };
  if (load <= load_at(0)) return {0, load_at(0), true};
  const std::vector<double> skews = skews_to_try();
  std::size_t best = 0;
  double most = load_at(0);
  for (std::size_t i = 1; i < skews.size(); ++i) {
    const double here = load_at(skews[i]);
    if (here >= load) return {crossing(load_at, load, skews[i - 1], skews[i]), load, true};
    if (here <= most) continue;
    most = here;
    best = i;
  }
  const double low = skews[best == 0 ? 0 : best - 1], high = skews[std::min(best + 1, skews.size() - 1)];
  const double top = summit(load_at, low, high);
  most = load_at(top);
  if (most >= load) return {crossing(load_at, load, low, top), load, true};
  return {crossing(load_at, most * (1 - 1e-9), low, top), most, false};
}

}  // namespace motley
