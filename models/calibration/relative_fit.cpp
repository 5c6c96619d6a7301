#include "models/calibration/relative_fit.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace motley {
namespace {

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
std::optional<std::vector<double>> weighted_fit(const std::vector<RelativePoint>& points,
                                                const std::vector<double>& weights,
                                                const std::vector<std::size_t>& parts) {
  std::vector<double> scale(parts.size());  // so that a part's own squares sum to 1
  for (std::size_t p = 0; p < points.size(); ++p)
    for (std::size_t a = 0; a < parts.size(); ++a) {
      const double amount = points[p].amounts[parts[a]];
      scale[a] += weights[p] * amount * amount;
    }
  for (double& each : scale) each = each > 0 ? 1 / std::sqrt(each) : 0;
  std::vector<std::vector<double>> rows(parts.size(), std::vector<double>(parts.size()));
  std::vector<double> right(parts.size());
  for (std::size_t p = 0; p < points.size(); ++p)
    for (std::size_t a = 0; a < parts.size(); ++a) {
      const double left = weights[p] * points[p].amounts[parts[a]] * scale[a];
      right[a] += left;
      for (std::size_t b = 0; b < parts.size(); ++b)
        rows[a][b] += left * points[p].amounts[parts[b]] * scale[b];
    }
  const auto solved = solve(rows, right);
  if (!solved) return std::nullopt;
  std::vector<double> seconds(points.front().amounts.size());
  for (std::size_t a = 0; a < parts.size(); ++a) {
    seconds[parts[a]] = (*solved)[a] * scale[a];
    if (!(seconds[parts[a]] > 0)) return std::nullopt;
  }
  return seconds;
}

}  // namespace

RelativePoint relative_point(std::vector<double> amounts, double seconds) {
  for (double& each : amounts) each /= seconds;
  return {std::move(amounts)};
}

double relative_error(const std::vector<double>& seconds, const RelativePoint& point) {
  double sum = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) sum += seconds[i] * point.amounts[i];
  return std::abs(sum - 1);
}

// By least squares that are weighted again and again; errors below kSmallest count by their squares.
std::optional<std::vector<double>> fit_parts(const std::vector<RelativePoint>& points, Parts parts) {
  constexpr int kRounds = 12;
  constexpr double kSmallest = 0.02;
  if (points.empty()) return std::nullopt;
  std::vector<std::size_t> fitted;
  for (std::size_t i = 0; i < points.front().amounts.size(); ++i)
    if (has_part(parts, i)) fitted.push_back(i);
  std::vector<double> weights(points.size(), 1.0);
  std::optional<std::vector<double>> seconds;
  for (int round = 0; round < kRounds; ++round) {
    seconds = weighted_fit(points, weights, fitted);
    if (!seconds) return std::nullopt;
    for (std::size_t p = 0; p < points.size(); ++p)
      weights[p] = 1 / std::max(kSmallest, relative_error(*seconds, points[p]));
  }
  return seconds;
}

HeldOutError held_out_error(const std::vector<RelativePoint>& points, Parts parts) {
  constexpr std::size_t kFolds = 8;
  const std::size_t folds = points.size() <= 2 * kFolds ? points.size() : kFolds;
  HeldOutError error{0, 0};
  for (std::size_t fold = 0; fold < folds; ++fold) {
    std::vector<RelativePoint> kept;
    for (std::size_t i = 0; i < points.size(); ++i)
      if (i % folds != fold) kept.push_back(points[i]);
    const auto seconds = fit_parts(kept, parts);
    if (!seconds) return {};
    for (std::size_t i = fold; i < points.size(); i += folds) {
      const double off = relative_error(*seconds, points[i]);
      error.mean += off / static_cast<double>(points.size());
      error.worst = std::max(error.worst, off);
    }
  }
  return error;
}

Parts best_parts(const std::vector<RelativePoint>& points, Parts possible, Parts alone) {
  Parts best = alone;
  if (points.size() < kFewestHeldOut) return best;
  double least = held_out_error(points, best).mean;
  for (Parts parts = 1; parts <= possible; ++parts) {
    if ((parts & ~possible) != 0) continue;
    const double error = held_out_error(points, parts).mean;
    if (error >= least) continue;
    least = error;
    best = parts;
  }
  return best;
}

}  // namespace motley
