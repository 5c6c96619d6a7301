#include "models/calibration/kernel_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "models/base/median.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// What a kernel's seconds are proportional to: nothing, its flops, its bytes, its pairs.
constexpr std::size_t kParts = 4;
constexpr unsigned kFlopsPart = 1, kBytesPart = 2, kPairsPart = 3;
using Parts = unsigned;  // a bit for each part that is fitted
using Seconds =
    std::array<double, kParts>;  // for each part: seconds of one call, one flop, one byte, one pair

bool has(Parts parts, std::size_t part) { return (parts >> part & 1U) != 0; }

// One shape: what it does, divided by its measured seconds.
struct Point {
  std::array<double, kParts> work;
};

Point point_of(const KernelSample& sample) {
  const KernelWork work = work_of(sample.kernel.op, sample.shape.flops, sample.shape.bytes, sample.shape.k);
  Point point{{1, work.flops, work.bytes, work.pairs}};
  for (double& each : point.work) each /= sample.shape.seconds;
  return point;
}

double error_of(const Seconds& seconds, const Point& point) {
  double sum = 0;
  for (std::size_t i = 0; i < kParts; ++i) sum += seconds[i] * point.work[i];
  return std::abs(sum - 1);
}

// Solves a symmetric positive system by elimination; none if it is singular, as where all shapes are proportional.
std::optional<std::vector<double>> solve(std::vector<std::vector<double>> rows, std::vector<double> right) {
  constexpr double kSingular = 1e-9;  // of a diagonal scaled to 1
  const std::size_t n = right.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (!(rows[i][i] > kSingular)) return std::nullopt;
    for (std::size_t j = i + 1; j < n; ++j) {
      const double factor = rows[j][i] / rows[i][i];
      for (std::size_t k = i; k < n; ++k) rows[j][k] -= factor * rows[i][k];
      right[j] -= factor * right[i];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) right[i] -= rows[i][k] * right[k];
    right[i] /= rows[i][i];
  }
  return right;
}

// Least squares of relative errors over the parts that are fitted. None: singular, or a part is negative.
std::optional<Seconds> weighted_fit(const std::vector<Point>& points, const std::vector<double>& weights,
                                    const std::vector<std::size_t>& parts) {
  std::array<double, kParts> scale{};  // so that a part's own squares sum to 1
  for (std::size_t p = 0; p < points.size(); ++p)
    for (const std::size_t i : parts) scale[i] += weights[p] * points[p].work[i] * points[p].work[i];
  for (double& each : scale) each = each > 0 ? 1 / std::sqrt(each) : 0;
  std::vector<std::vector<double>> rows(parts.size(), std::vector<double>(parts.size()));
  std::vector<double> right(parts.size());
  for (std::size_t p = 0; p < points.size(); ++p)
    for (std::size_t a = 0; a < parts.size(); ++a) {
      const double left = weights[p] * points[p].work[parts[a]] * scale[parts[a]];
      right[a] += left;
      for (std::size_t b = 0; b < parts.size(); ++b)
        rows[a][b] += left * points[p].work[parts[b]] * scale[parts[b]];
    }
  const auto solved = solve(rows, right);
  if (!solved) return std::nullopt;
  Seconds seconds{};
  for (std::size_t a = 0; a < parts.size(); ++a) {
    seconds[parts[a]] = (*solved)[a] * scale[parts[a]];
    if (!(seconds[parts[a]] > 0)) return std::nullopt;
  }
  return seconds;
}

// The least sum of absolute relative errors, by least squares that are weighted again and again; errors below
// kSmallest count by their squares.
std::optional<Seconds> fit(const std::vector<Point>& points, Parts fitted) {
  constexpr int kRounds = 12;
  constexpr double kSmallest = 0.02;
  std::vector<std::size_t> parts;
  for (std::size_t i = 0; i < kParts; ++i)
    if (has(fitted, i)) parts.push_back(i);
  std::vector<double> weights(points.size(), 1.0);
  std::optional<Seconds> seconds;
  for (int round = 0; round < kRounds; ++round) {
    seconds = weighted_fit(points, weights, parts);
    if (!seconds) return std::nullopt;
    for (std::size_t p = 0; p < points.size(); ++p)
      weights[p] = 1 / std::max(kSmallest, error_of(*seconds, points[p]));
  }
  return seconds;
}

struct HeldOut {
  double mean = std::numeric_limits<double>::infinity(), worst = mean;
};
// Each shape predicted by a fit to others: all others where they are few, else those of other folds.
HeldOut held_out(const std::vector<Point>& points, Parts parts) {
  constexpr std::size_t kFolds = 8;
  const std::size_t folds = points.size() <= 2 * kFolds ? points.size() : kFolds;
  HeldOut error{0, 0};
  for (std::size_t fold = 0; fold < folds; ++fold) {
    std::vector<Point> kept;
    for (std::size_t i = 0; i < points.size(); ++i)
      if (i % folds != fold) kept.push_back(points[i]);
    const auto seconds = fit(kept, parts);
    if (!seconds) return {};
    for (std::size_t i = fold; i < points.size(); i += folds) {
      const double off = error_of(*seconds, points[i]);
      error.mean += off / static_cast<double>(points.size());
      error.worst = std::max(error.worst, off);
    }
  }
  return error;
}

constexpr std::size_t kFewest = 3;  // shapes of which one can be held out

// The parts whose fit is best on held-out shapes; with too few shapes, work alone.
Parts best_parts(const std::vector<Point>& points) {
  const auto all_have = [&](std::size_t part) {
    return std::all_of(points.begin(), points.end(), [&](const Point& each) { return each.work[part] > 0; });
  };
  const auto bit = [](std::size_t part) { return 1U << part; };
  Parts possible = bit(0);
  for (std::size_t part = 1; part < kParts; ++part)
    if (all_have(part)) possible |= bit(part);
  Parts best = has(possible, kFlopsPart)   ? bit(kFlopsPart)
               : has(possible, kBytesPart) ? bit(kBytesPart)
                                           : bit(0);
  if (points.size() < kFewest) return best;
  double least = held_out(points, best).mean;
  for (Parts parts = 1; parts < 1U << kParts; ++parts) {
    if ((parts & ~possible) != 0) continue;
    const double error = held_out(points, parts).mean;
    if (error >= least) continue;
    least = error;
    best = parts;
  }
  return best;
}

KernelRate rate_of(const Seconds& seconds) {
  const auto inverse = [](double each) { return each > 0 ? rounded(1 / each) : 0; };
  return {.overhead_s = rounded(seconds[0]),
          .flops_per_s = inverse(seconds[kFlopsPart]),
          .bytes_per_s = inverse(seconds[kBytesPart]),
          .pairs_per_s = inverse(seconds[kPairsPart])};
}

OpFit fit_kernel(const RatedKernel& kernel, const std::vector<KernelSample>& samples) {
  std::vector<Point> points;
  OpFit result;
  for (const KernelSample& sample : samples) {
    points.push_back(point_of(sample));
    result.seconds += sample.shape.seconds * static_cast<double>(sample.times.size());
  }
  const Parts parts = best_parts(points);
  const auto seconds = fit(points, parts);
  MOTLEY_CHECK(seconds.has_value());  // one part alone is never singular
  result.kernel = kernel;
  result.rate = rate_of(*seconds);
  result.shapes = static_cast<std::int64_t>(points.size());
  for (const Point& point : points) {
    result.mean_error += error_of(*seconds, point) / static_cast<double>(points.size());
    result.worst_error = std::max(result.worst_error, error_of(*seconds, point));
  }
  if (points.size() >= kFewest) {
    const HeldOut error = held_out(points, parts);
    result.held_out_mean = error.mean;
    result.held_out_worst = error.worst;
    result.rate.error = rounded(error.mean);
  }
  return result;
}

}  // namespace

double rounded(double value) {
  if (!(value > 0)) return 0;
  const double digit = std::pow(10.0, std::floor(std::log10(value)) - 3);
  return std::round(value / digit) * digit;
}

KernelFit fit_kernels(const Samples& samples) {
  KernelFit result;
  std::map<RatedKernel, std::vector<KernelSample>> by_kernel;
  for (const KernelSample& sample : samples.kernels) {
    if (result.rates.format.value_or(sample.format) != sample.format)
      throw Refusal(Exit::usage, "two-formats", {},
                    fmt::format("some kernels computed in {}, others in {}", name_of(*result.rates.format),
                                name_of(sample.format)),
                    "calibrate each format by itself");
    result.rates.format = sample.format;
    by_kernel[sample.kernel].push_back(sample);
  }
  for (const auto& [kernel, all] : by_kernel) {
    result.ops.push_back(fit_kernel(kernel, all));
    result.rates.rates[kernel] = result.ops.back().rate;
    auto& shapes = result.rates.shapes[kernel];
    for (const KernelSample& sample : all) {
      shapes.push_back(sample.shape);
      shapes.back().seconds = rounded(sample.shape.seconds);
    }
    std::sort(shapes.begin(), shapes.end());
  }
  std::vector<double> rates;
  for (const OptimizerSample& sample : samples.optimizer) rates.push_back(sample.bytes / sample.seconds);
  if (!rates.empty() && median_of(rates) > 0)
    result.rates.optimizer = KernelRate{.bytes_per_s = rounded(median_of(rates))};
  return result;
}

}  // namespace motley
