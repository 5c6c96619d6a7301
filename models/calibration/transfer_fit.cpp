#include "models/calibration/transfer_fit.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "models/base/median.hpp"

namespace motley {
namespace {

constexpr std::size_t kMostPieces = 3;
constexpr std::size_t kFewestSizes = 3;  // of a piece, and to hold one out
constexpr std::size_t kMostFolds = 40;   // more sizes than that are held out several at a time
constexpr std::size_t kMostBreaks = 30;  // that are tried
constexpr int kMostRounds = 60;
constexpr double kHuber = 1.345;               // of standard deviations: 95 % efficient for normal errors
constexpr double kDeviationOfMedian = 1.4826;  // standard deviation over median absolute deviation
// A further piece must lower the error on held-out sizes to this share of it, and by this much.
constexpr double kBetter = 0.8, kBetterBy = 0.01;

using Points = std::vector<std::pair<double, double>>;  // bytes and seconds

struct Line {
  double latency_s = 0, s_per_byte = 0;
  double at(double bytes) const { return latency_s + s_per_byte * bytes; }
};

// The line of least weighted squares, neither part negative.
Line least_squares(const Points& points, const std::vector<double>& weights) {
  double w = 0, x = 0, xx = 0, y = 0, xy = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto [bytes, seconds] = points[i];
    w += weights[i];
    x += weights[i] * bytes;
    xx += weights[i] * bytes * bytes;
    y += weights[i] * seconds;
    xy += weights[i] * bytes * seconds;
  }
  const double determinant = w * xx - x * x;
  Line line;
  if (determinant > 1e-12 * w * xx)
    line = {(xx * y - x * xy) / determinant, (w * xy - x * y) / determinant};
  else
    line = {y / w, 0};
  if (line.latency_s < 0) line = {0, xy / xx};
  if (line.s_per_byte < 0) line = {y / w, 0};
  return line;
}

Line fit_line(const Points& points) {
  std::vector<double> weights;
  for (const auto& [bytes, seconds] : points) weights.push_back(1 / (seconds * seconds));
  Line line = least_squares(points, weights);
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<double> residuals, sizes;
    for (const auto& [bytes, seconds] : points) {
      residuals.push_back(seconds / line.at(bytes) - 1);
      sizes.push_back(std::abs(residuals.back()));
    }
    const double limit = kHuber * std::max(kDeviationOfMedian * median_of(sizes), 1e-9);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double predicted = line.at(points[i].first);
      weights[i] = std::min(1.0, limit / std::max(sizes[i], 1e-300)) / (predicted * predicted);
    }
    const Line before = std::exchange(line, least_squares(points, weights));
    const auto has_settled = [](double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(a); };
    if (has_settled(line.latency_s, before.latency_s) && has_settled(line.s_per_byte, before.s_per_byte))
      break;
  }
  return line;
}

// All samples of one kind and number of ranks.
class Series {
 public:
  explicit Series(Points points) : points_(std::move(points)) {
    std::sort(points_.begin(), points_.end());
    std::map<double, std::vector<double>> times;
    for (const auto& [bytes, seconds] : points_) times[bytes].push_back(seconds);
    for (const auto& [bytes, all] : times) medians_.emplace_back(bytes, median_of(all));
  }

  TransferFit fit() const {
    TransferFit fit;
    fit.sizes = static_cast<std::int64_t>(medians_.size());
    std::vector<double> breaks;
    if (medians_.size() >= kFewestSizes) {
      Errors best = held_out(breaks);
      while (breaks.size() + 1 < kMostPieces && add_break(breaks, best)) {
      }
      fit.held_out_mean = best.mean;
      fit.held_out_worst = best.worst;
    }
    fit.pieces = pieces(points_, breaks);
    for (const auto& [bytes, seconds] : medians_) {
      const double error = std::abs(fit.seconds(bytes) / seconds - 1);
      fit.mean_error += error / static_cast<double>(medians_.size());
      fit.worst_error = std::max(fit.worst_error, error);
    }
    return fit;
  }

 private:
  struct Errors {
    double mean = 0, worst = 0;
  };

  static std::vector<TransferPiece> pieces(const Points& points, const std::vector<double>& breaks) {
    std::vector<TransferPiece> result;
    for (std::size_t i = 0; i <= breaks.size(); ++i) {
      const double from = i == 0 ? 0 : breaks[i - 1];
      Points part;
      for (const auto& point : points)
        if (point.first >= from && (i == breaks.size() || point.first < breaks[i])) part.push_back(point);
      if (part.empty()) continue;
      const Line line = fit_line(part);
      result.push_back({from, line.latency_s, line.s_per_byte > 0 ? 1 / line.s_per_byte : 0});
    }
    return result;
  }

  Errors held_out(const std::vector<double>& breaks) const {
    const std::size_t folds = std::min(medians_.size(), kMostFolds);
    Errors errors;
    for (std::size_t fold = 0; fold < folds; ++fold) {
      std::map<double, bool> is_held;
      for (std::size_t i = 0; i < medians_.size(); ++i) is_held[medians_[i].first] = i % folds == fold;
      Points others;
      for (const auto& point : points_)
        if (!is_held[point.first]) others.push_back(point);
      TransferFit fit;
      fit.pieces = pieces(others, breaks);
      for (const auto& [bytes, seconds] : medians_) {
        if (!is_held[bytes]) continue;
        const double error = std::abs(fit.seconds(bytes) / seconds - 1);
        errors.mean += error / static_cast<double>(medians_.size());
        errors.worst = std::max(errors.worst, error);
      }
    }
    return errors;
  }

  // Whether each piece has enough sizes, also while one is held out.
  bool has_enough(const std::vector<double>& breaks) const {
    std::vector<std::size_t> counts(breaks.size() + 1);
    for (const auto& median : medians_)
      ++counts[static_cast<std::size_t>(std::upper_bound(breaks.begin(), breaks.end(), median.first) -
                                        breaks.begin())];
    return *std::min_element(counts.begin(), counts.end()) > kFewestSizes;
  }

  // Adds the break that predicts held-out sizes best, if it predicts them much better than `best`.
  bool add_break(std::vector<double>& breaks, Errors& best) const {
    const std::size_t stride = (medians_.size() + kMostBreaks - 1) / kMostBreaks;
    std::vector<double> best_breaks;
    Errors least = best;
    for (std::size_t i = 0; i < medians_.size(); i += stride) {
      std::vector<double> tried = breaks;
      tried.insert(std::upper_bound(tried.begin(), tried.end(), medians_[i].first), medians_[i].first);
      if (!has_enough(tried)) continue;
      if (const Errors errors = held_out(tried); errors.mean < least.mean) {
        least = errors;
        best_breaks = tried;
      }
    }
    if (best_breaks.empty() || least.mean > kBetter * best.mean || least.mean > best.mean - kBetterBy)
      return false;
    breaks = best_breaks;
    best = least;
    return true;
  }

  Points points_;
  Points medians_;  // by size
};

}  // namespace

double TransferFit::seconds(double bytes) const {
  const TransferPiece* piece = nullptr;
  for (const TransferPiece& each : pieces)
    if (piece == nullptr || bytes >= each.from_bytes) piece = &each;
  return piece == nullptr ? 0 : piece->seconds(bytes);
}

double TransferFit::bus_bytes_per_s() const {
  const double bandwidth = pieces.empty() ? 0 : pieces.back().bytes_per_s;
  const double others = static_cast<double>(ranks - 1) / std::max(ranks, 1);
  switch (kind) {
    case TransferKind::all_reduce:
      return bandwidth * 2 * others;
    case TransferKind::all_gather:
    case TransferKind::reduce_scatter:
    case TransferKind::all_to_all:
    case TransferKind::gather:
    case TransferKind::scatter:
      return bandwidth * others;
    default:
      return bandwidth;
  }
}

std::vector<TransferFit> fit_transfers(const std::vector<TransferSample>& samples) {
  std::map<std::tuple<TransferKind, int, bool>, Points> series;
  for (const TransferSample& sample : samples)
    series[{sample.kind, sample.ranks, sample.beside_compute}].emplace_back(sample.bytes, sample.seconds);
  std::vector<TransferFit> fits;
  for (auto& [key, points] : series) {
    TransferFit& fit = fits.emplace_back(Series(std::move(points)).fit());
    std::tie(fit.kind, fit.ranks, fit.beside_compute) = key;
  }
  return fits;
}

}  // namespace motley
