#include "models/cluster/variation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

double normal_share_below(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

// Acklam's rational approximation (2003; relative error 1.15e-9), and one step of Halley's method to full precision.
double normal_quantile(double share) {
  MOTLEY_CHECK(share > 0 && share < 1);
  constexpr std::array a{-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                         1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr std::array b{-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                         6.680131188771972e+01, -1.328068155288572e+01};
  constexpr std::array c{-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                         -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr std::array d{7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                         3.754408661907416e+00};
  const auto tail = [&](double q) {
    return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  };
  constexpr double kTail = 0.02425;
  double z = 0;
  if (share < kTail) {
    z = tail(std::sqrt(-2 * std::log(share)));
  } else if (share > 1 - kTail) {
    z = -tail(std::sqrt(-2 * std::log1p(-share)));
  } else {
    const double q = share - 0.5, r = q * q;
    z = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
        (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
  }
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  const double step = (normal_share_below(z) - share) / density;
  return std::isfinite(step) ? z - step / (1 + z * step / 2) : z;
}

namespace {

// Logarithms of the shares of a normal distribution above -z and below -z, at equal steps of z from 0 to kMost.
struct LogShares {
  static constexpr double kMost = 9;
  static constexpr int kSteps = 360;
  std::array<double, kSteps + 1> above{}, below{};
  LogShares() {
    for (int i = 0; i <= kSteps; ++i) {
      const double share_below = normal_share_below(-(kMost * i / kSteps));
      above[at(i)] = std::log1p(-share_below);
      below[at(i)] = std::log(share_below);
    }
  }
};

}  // namespace

// The integral of x d(F(x)^count), by parts: above 0 of 1 - F^count, and below 0 of -F^count.
double expected_largest(double count) {
  MOTLEY_CHECK(count >= 1);
  static const LogShares shares;  // the same for every count
  constexpr int kSteps = LogShares::kSteps;
  double sum = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const double weight = i == 0 || i == kSteps ? 1 : i % 2 == 1 ? 4 : 2;
    const double above = -std::expm1(count * shares.above[at(i)]);
    const double below = std::exp(count * shares.below[at(i)]);
    sum += weight * (above - below);
  }
  return sum * LogShares::kMost / kSteps / 3;
}

Spread Spread::normal(double deviation, double mean) {
  Spread spread;
  spread.mean_ = mean;
  spread.deviation_ = deviation;
  return spread;
}

Spread Spread::measured(std::vector<Quantile> quantiles) {
  MOTLEY_CHECK(quantiles.size() >= 2 && quantiles.front().share == 0 && quantiles.back().share == 1);
  Spread spread;
  spread.quantiles_ = std::move(quantiles);
  return spread;
}

bool Spread::varies() const {
  return deviation_ > 0 || mean_ != 1 ||
         std::any_of(quantiles_.begin(), quantiles_.end(),
                     [](const Quantile& each) { return each.speed != 1; });
}

double Spread::speed_at(double share) const {
  if (quantiles_.empty()) {
    if (deviation_ <= 0) return mean_;
    constexpr double kEnd = 1e-12;
    return std::clamp(mean_ + deviation_ * normal_quantile(std::clamp(share, kEnd, 1 - kEnd)), kLeastSpeed,
                      kMostSpeed);
  }
  for (std::size_t i = 1; i < quantiles_.size(); ++i) {
    const Quantile& low = quantiles_[i - 1];
    const Quantile& high = quantiles_[i];
    if (share > high.share || high.share == low.share) continue;
    return std::lerp(low.speed, high.speed, std::max(0.0, (share - low.share) / (high.share - low.share)));
  }
  return quantiles_.back().speed;
}

double Spread::share_below(double speed) const {
  if (quantiles_.empty()) {
    if (deviation_ <= 0 || speed <= kLeastSpeed || speed > kMostSpeed) return speed > mean_ ? 1 : 0;
    return normal_share_below((speed - mean_) / deviation_);
  }
  double share = 0;
  for (std::size_t i = 1; i < quantiles_.size(); ++i) {
    const Quantile& low = quantiles_[i - 1];
    const Quantile& high = quantiles_[i];
    if (speed > high.speed)
      share = high.share;
    else if (speed > low.speed)
      return std::lerp(low.share, high.share, (speed - low.speed) / (high.speed - low.speed));
  }
  return speed > quantiles_.back().speed ? 1 : share;
}

namespace {

// A number in (0, 1). The standard's distributions may differ between libraries; this does not.
double uniform(std::mt19937_64& random) { return (static_cast<double>(random() >> 11) + 0.5) * 0x1.0p-53; }

}  // namespace

Cluster draw_speeds(const Cluster& cluster, std::int64_t number) {
  Cluster drawn = cluster;
  const Variation variation = drawn.variation.value_or(Variation{});
  drawn.variation.reset();
  std::seed_seq seed{variation.seed, number};
  std::mt19937_64 random(seed);
  int chip = 0, node = 0;
  for (const NodeGroup& group : cluster.groups)
    for (int i = 0; i < group.nodes; ++i, ++node) {
      Slow whole{.node = node, .factor = variation.nodes.speed_at(uniform(random))};
      whole.nics = variation.nics.speed_at(uniform(random));
      if (whole.factor != 1 || whole.nics != 1) drawn.slow.push_back(whole);
      for (int k = 0; k < group.chips_per_node; ++k, ++chip) {
        const double speed = variation.chips.speed_at(uniform(random));
        if (speed != 1) drawn.slow.push_back(Slow{.chip = chip, .factor = speed});
      }
    }
  build_topology(drawn);
  return drawn;
}

}  // namespace motley
