#include "models/calibration/stillness.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/refusal.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

// A sentinel that takes so much longer than usual is disturbed. Clocks of idle and busy machines differ by less.
constexpr double kSlowest = 1.2;
constexpr double kLeastShare = 0.97;  // of the time, on a processor
constexpr double kMostTaken = 0.02;   // of the time, stolen or throttled

}  // namespace

double Stillness::usual_s() const {
  // The lower quartile: on a busy machine most times are disturbed, and none is too short.
  return sentinels_.empty() ? 0 : sentinels_[(sentinels_.size() - 1) / 4];
}

double Stillness::noise() const {
  if (sentinels_.size() < 4) return 0;
  const auto quarter = [&](std::size_t i) { return sentinels_[(sentinels_.size() - 1) * i / 4]; };
  return (quarter(3) - quarter(1)) / 2 / quarter(1);
}

std::string Stillness::judge(const Surroundings& seen) {
  for (const double each : {seen.before_s, seen.after_s})
    sentinels_.insert(std::upper_bound(sentinels_.begin(), sentinels_.end(), each), each);
  const double slower = std::max(seen.before_s, seen.after_s);
  if (slower > kSlowest * usual_s())
    return fmt::format("the sentinel took {}, usually {}", format_seconds(slower), format_seconds(usual_s()));
  if (seen.share_on_processor < kLeastShare)
    return fmt::format("other processes took {} of the processor's time",
                       format_percent(1 - seen.share_on_processor));
  if (seen.taken_s > kMostTaken * seen.seconds)
    return fmt::format("{} of {} were stolen or throttled", format_seconds(seen.taken_s),
                       format_seconds(seen.seconds));
  return "";
}

void refuse_all_disturbed(std::int64_t measurements, std::int64_t busy_ranks, const std::string& last) {
  throw Refusal(Exit::mismatch, "never-still", {},
                fmt::format("this machine does not keep still: all {} measurements of {} busy ranks were "
                            "disturbed; {}",
                            measurements, busy_ranks, last),
                "end what else runs here, or give it other processors");
}

void refuse_disturbed(const std::string& probe, int before, const std::string& last) {
  throw Refusal(
      Exit::mismatch, "never-still", {},
      fmt::format("this machine does not keep still: `{}` was disturbed, and {} measurements before "
                  "it; {}",
                  probe, before, last),
      "end what else runs here, or give it other processors; what was measured before is kept");
}

}  // namespace motley
