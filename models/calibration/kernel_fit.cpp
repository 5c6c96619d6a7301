#include "models/calibration/kernel_fit.hpp"

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

// What a kernel's seconds are proportional to: nothing, its flops, its bytes.
constexpr std::size_t kParts = 3;
using Parts = std::array<bool, kParts>;
using Seconds = std::array<double, kParts>;  // for each part: seconds of one call, one flop, one byte

std::array<double, kParts> work_of(const KernelSample& sample) { return {1, sample.flops, sample.bytes}; }

double predicted_s(const Seconds& seconds, const KernelSample& sample) {
  const auto work = work_of(sample);
  double sum = 0;
  for (std::size_t i = 0; i < kParts; ++i) sum += seconds[i] * work[i];
  return sum;
}

double error_of(const Seconds& seconds, const KernelSample& sample) {
  return std::abs(predicted_s(seconds, sample) / sample.seconds - 1);
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
std::optional<Seconds> fit(const std::vector<const KernelSample*>& samples, const Parts& fitted) {
  std::vector<std::size_t> parts;
  for (std::size_t i = 0; i < kParts; ++i)
    if (fitted[i]) parts.push_back(i);
  std::array<double, kParts> scale{};  // so that a part's own squares sum to 1
  for (const KernelSample* sample : samples)
    for (const std::size_t i : parts) {
      const double share = work_of(*sample)[i] / sample->seconds;
      scale[i] += share * share;
    }
  for (double& each : scale) each = each > 0 ? 1 / std::sqrt(each) : 0;
  std::vector<std::vector<double>> rows(parts.size(), std::vector<double>(parts.size()));
  std::vector<double> right(parts.size());
  for (const KernelSample* sample : samples)
    for (std::size_t a = 0; a < parts.size(); ++a) {
      const double left = work_of(*sample)[parts[a]] / sample->seconds * scale[parts[a]];
      right[a] += left;
      for (std::size_t b = 0; b < parts.size(); ++b)
        rows[a][b] += left * work_of(*sample)[parts[b]] / sample->seconds * scale[parts[b]];
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

std::vector<const KernelSample*> all_but(const std::vector<KernelSample>& samples, std::size_t left_out) {
  std::vector<const KernelSample*> kept;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (i != left_out) kept.push_back(&samples[i]);
  return kept;
}

struct HeldOut {
  double mean = std::numeric_limits<double>::infinity(), worst = mean;
};
// Each shape predicted by a fit to the others.
HeldOut held_out(const std::vector<KernelSample>& samples, const Parts& parts) {
  HeldOut error{0, 0};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto seconds = fit(all_but(samples, i), parts);
    if (!seconds) return {};
    const double off = error_of(*seconds, samples[i]);
    error.mean += off / static_cast<double>(samples.size());
    error.worst = std::max(error.worst, off);
  }
  return error;
}

constexpr std::size_t kFewest = 3;  // shapes of which one can be held out

// The parts whose fit is best on held-out shapes; with too few shapes, work alone.
Parts best_parts(const std::vector<KernelSample>& samples) {
  const bool has_flops =
      std::all_of(samples.begin(), samples.end(), [](const KernelSample& each) { return each.flops > 0; });
  const bool has_bytes =
      std::all_of(samples.begin(), samples.end(), [](const KernelSample& each) { return each.bytes > 0; });
  Parts best = has_flops   ? Parts{false, true, false}
               : has_bytes ? Parts{false, false, true}
                           : Parts{true, false, false};
  if (samples.size() < kFewest) return best;
  double least = held_out(samples, best).mean;
  for (unsigned mask = 1; mask < 1U << kParts; ++mask) {
    const Parts parts{(mask & 1U) != 0, (mask & 2U) != 0, (mask & 4U) != 0};
    if ((parts[1] && !has_flops) || (parts[2] && !has_bytes)) continue;
    const double error = held_out(samples, parts).mean;
    if (error >= least) continue;
    least = error;
    best = parts;
  }
  return best;
}

// Four digits: more than any measurement has, and a person reads them.
double rounded(double value) {
  if (!(value > 0)) return 0;
  const double digit = std::pow(10.0, std::floor(std::log10(value)) - 3);
  return std::round(value / digit) * digit;
}

KernelRate rate_of(const Seconds& seconds) {
  const auto inverse = [](double each) { return each > 0 ? rounded(1 / each) : 0; };
  return {.overhead_s = rounded(seconds[0]),
          .flops_per_s = inverse(seconds[1]),
          .bytes_per_s = inverse(seconds[2])};
}

Seconds fitted(const std::vector<KernelSample>& samples) {
  const auto everything = all_but(samples, samples.size());
  const auto seconds = fit(everything, best_parts(samples));
  MOTLEY_CHECK(seconds.has_value());  // one part alone is never singular
  return *seconds;
}

}  // namespace

KernelFit fit_kernels(const Samples& samples) {
  std::map<KernelOp, std::vector<KernelSample>> by_op;
  for (const KernelSample& sample : samples.kernels) by_op[sample.op].push_back(sample);
  KernelFit result;
  for (const auto& [op, all] : by_op) {
    const Seconds seconds = fitted(all);
    OpFit& fit = result.ops.emplace_back();
    fit.op = op;
    fit.rate = rate_of(seconds);
    fit.shapes = static_cast<std::int64_t>(all.size());
    for (const KernelSample& sample : all) {
      fit.mean_error += error_of(seconds, sample) / static_cast<double>(all.size());
      fit.worst_error = std::max(fit.worst_error, error_of(seconds, sample));
    }
    if (all.size() >= kFewest) {
      const HeldOut error = held_out(all, best_parts(all));
      fit.held_out_mean = error.mean;
      fit.held_out_worst = error.worst;
    }
    result.rates.rates[op] = fit.rate;
  }
  std::vector<double> rates;
  for (const OptimizerSample& sample : samples.optimizer) rates.push_back(sample.bytes / sample.seconds);
  if (!rates.empty() && median_of(rates) > 0)
    result.rates.optimizer =
        KernelRate{.overhead_s = 0, .flops_per_s = 0, .bytes_per_s = rounded(median_of(rates))};
  return result;
}

}  // namespace motley
