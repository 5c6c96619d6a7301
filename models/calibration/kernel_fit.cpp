#include "models/calibration/kernel_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "models/base/median.hpp"
#include "models/base/refusal.hpp"
#include "models/calibration/relative_fit.hpp"

namespace motley {
namespace {

// What a kernel's seconds are proportional to: nothing, its flops, its bytes, its pairs.
constexpr std::size_t kOverheadPart = 0, kFlopsPart = 1, kBytesPart = 2, kPairsPart = 3;

RelativePoint point_of(const KernelSample& sample) {
  const KernelWork work = work_of(sample.kernel.op, sample.shape.flops, sample.shape.bytes, sample.shape.k);
  return relative_point({1, work.flops, work.bytes, work.pairs}, sample.shape.seconds);
}

KernelRate rate_of(const std::vector<double>& seconds) {
  const auto inverse = [](double each) { return each > 0 ? rounded(1 / each) : 0; };
  return {.overhead_s = rounded(seconds[kOverheadPart]),
          .flops_per_s = inverse(seconds[kFlopsPart]),
          .bytes_per_s = inverse(seconds[kBytesPart]),
          .pairs_per_s = inverse(seconds[kPairsPart])};
}

// The kinds of work that every sample has; overhead is always possible.
Parts possible_parts(const std::vector<RelativePoint>& points) {
  Parts possible = part_bit(kOverheadPart);
  for (const std::size_t part : {kFlopsPart, kBytesPart, kPairsPart})
    if (std::all_of(points.begin(), points.end(),
                    [&](const RelativePoint& each) { return each.amounts[part] > 0; }))
      possible |= part_bit(part);
  return possible;
}

OpFit fit_kernel(const RatedKernel& kernel, const std::vector<KernelSample>& samples) {
  std::vector<RelativePoint> points;
  OpFit result;
  for (const KernelSample& sample : samples) {
    points.push_back(point_of(sample));
    result.seconds += sample.shape.seconds * static_cast<double>(sample.times.size());
  }
  const Parts possible = possible_parts(points);
  const std::size_t alone = has_part(possible, kFlopsPart)   ? kFlopsPart
                            : has_part(possible, kBytesPart) ? kBytesPart
                                                             : kOverheadPart;
  const Parts parts = best_parts(points, possible, part_bit(alone));
  const auto seconds = fit_parts(points, parts);
  MOTLEY_CHECK(seconds.has_value());  // one part alone is never singular
  result.kernel = kernel;
  result.rate = rate_of(*seconds);
  result.shapes = static_cast<std::int64_t>(points.size());
  for (const RelativePoint& point : points) {
    result.mean_error += relative_error(*seconds, point) / static_cast<double>(points.size());
    result.worst_error = std::max(result.worst_error, relative_error(*seconds, point));
  }
  if (points.size() >= kFewestHeldOut) {
    const HeldOutError error = held_out_error(points, parts);
    result.held_out_mean = error.mean;
    result.held_out_worst = error.worst;
    result.rate.error = rounded(error.mean);
  }
  return result;
}

// How far the medians of unlike jobs are from the usual one of their shape: a mean, weighed by time. 0: no shape was in
// two jobs.
double apart_between_jobs(const std::vector<KernelSample>& samples) {
  double apart_s = 0, all_s = 0;
  for (const KernelSample& sample : samples) {
    const auto jobs = static_cast<double>(sample.job_medians.size());
    if (jobs < 2) continue;
    const double usual_s = std::accumulate(sample.job_medians.begin(), sample.job_medians.end(), 0.0) / jobs;
    const double seconds = sample.shape.seconds * static_cast<double>(sample.times.size());
    double apart = 0;
    for (const double each : sample.job_medians) apart += std::abs(each / usual_s - 1) / jobs;
    apart_s += seconds * apart * std::sqrt(jobs / (jobs - 1));  // the usual one is of the same jobs
    all_s += seconds;
  }
  return all_s > 0 ? apart_s / all_s : 0;
}

}  // namespace

double rounded(double value) { return value > 0 ? std::stod(fmt::format("{:.3e}", value)) : 0; }

KernelFit fit_kernels(const Samples& samples, const Location& where) {
  KernelFit result;
  std::map<RatedKernel, std::vector<KernelSample>> by_kernel;
  for (const KernelSample& sample : samples.kernels) {
    if (result.rates.format.value_or(sample.format) != sample.format)
      throw Refusal(Exit::usage, "two-formats", where,
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
  result.rates.between_jobs = rounded(apart_between_jobs(samples.kernels));
  std::vector<double> rates;
  for (const OptimizerSample& sample : samples.optimizer) rates.push_back(sample.bytes / sample.seconds);
  if (!rates.empty() && median_of(rates) > 0)
    result.rates.optimizer = KernelRate{.bytes_per_s = rounded(median_of(rates))};
  return result;
}

}  // namespace motley
