#include "models/calibration/link_fit.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "models/base/median.hpp"
#include "models/calibration/relative_fit.hpp"

namespace motley {
namespace {

constexpr Parts kLatencyAndBytes = part_bit(0) | part_bit(1);

RelativePoint point_of(const LinkSample& sample) {
  return relative_point({sample.latencies, sample.bytes}, sample.seconds);
}

// Errors of the transfers that `belongs` picks.
TransferErrors errors_of(const std::string& kind, const std::vector<LinkSample>& transfers,
                         const std::vector<double>& seconds,
                         const std::function<bool(const LinkSample&)>& belongs) {
  TransferErrors errors{kind};
  std::vector<double> signed_errors;
  for (const LinkSample& each : transfers) {
    if (!belongs(each)) continue;
    const double predicted_s = seconds[0] * each.latencies + seconds[1] * each.bytes;
    signed_errors.push_back(predicted_s / each.seconds - 1);
    errors.mean_error += std::abs(signed_errors.back());
  }
  errors.transfers = static_cast<std::int64_t>(signed_errors.size());
  if (signed_errors.empty()) return errors;
  errors.mean_error /= static_cast<double>(signed_errors.size());
  errors.bias = median_of(signed_errors);
  return errors;
}

std::vector<TransferErrors> errors_by_kind(const std::vector<LinkSample>& transfers,
                                           const std::vector<double>& seconds) {
  std::map<std::string, TransferErrors> kinds;
  for (const LinkSample& each : transfers)
    if (!kinds.contains(each.kind))
      kinds[each.kind] = errors_of(each.kind, transfers, seconds,
                                   [&](const LinkSample& other) { return other.kind == each.kind; });
  std::vector<TransferErrors> errors;
  for (auto& [kind, each] : kinds) errors.push_back(std::move(each));
  for (const bool beside : {false, true})
    errors.push_back(errors_of(beside ? "beside a compute" : "idle", transfers, seconds,
                               [&](const LinkSample& each) { return each.beside_compute == beside; }));
  return errors;
}

}  // namespace

std::optional<LinkFit> fit_link(const std::vector<LinkSample>& transfers) {
  std::vector<RelativePoint> points;
  for (const LinkSample& each : transfers) points.push_back(point_of(each));
  const auto seconds = fit_parts(points, kLatencyAndBytes);
  if (!seconds) return std::nullopt;
  LinkFit fit;
  fit.latency_s = (*seconds)[0];
  fit.bytes_per_s = 1 / (*seconds)[1];
  fit.transfers = static_cast<std::int64_t>(points.size());
  for (const RelativePoint& point : points) {
    const double error = relative_error(*seconds, point);
    fit.mean_error += error / static_cast<double>(points.size());
    fit.worst_error = std::max(fit.worst_error, error);
  }
  fit.by_kind = errors_by_kind(transfers, *seconds);
  if (points.size() >= kFewestHeldOut) {
    const HeldOutError error = held_out_error(points, kLatencyAndBytes);
    fit.held_out_mean = error.mean;
    fit.held_out_worst = error.worst;
  }
  return fit;
}

std::optional<LinkFigures> link_between(const std::vector<TransferSample>& transfers) {
  constexpr double kSmall = 100, kLarge = 1e5;  // bytes
  std::map<double, std::vector<double>> times;
  std::vector<double> small;
  for (const TransferSample& each : transfers) {
    if (each.kind != TransferKind::send_latency || each.beside_compute) continue;
    if (each.bytes < kSmall) small.push_back(each.seconds);
    if (each.bytes > kLarge) times[each.bytes].push_back(each.seconds);
  }
  if (small.empty() || times.size() < 2) return std::nullopt;
  const auto last = std::prev(times.end()), before = std::prev(last);
  const double more_s = median_of(last->second) - median_of(before->second);
  if (!(more_s > 0)) return std::nullopt;
  return LinkFigures{median_of(small), (last->first - before->first) / more_s};
}

}  // namespace motley
