#include "models/report/interval_text.hpp"

#include <fmt/format.h>

#include "models/base/units.hpp"

namespace motley {
namespace {

// The runs that an interval rests on, and what is predicted where that is not the software's own.
std::string describe_basis(const Interval& interval) {
  const std::string& software = interval.software;
  if (software.empty()) return "of any software; predicted are the chips' own figures alone";
  if (software == kUsualSoftware)
    return "of any software; predicted is the usual one (`software` in the scenario names yours)";
  if (interval.regime == Regime::calibrated) return "of this software";
  return interval.regime == Regime::similar
             ? fmt::format("of any software; `{}` was not measured on just these chips and networks",
                           software)
             : fmt::format("of any software; nothing is known of `{}` on some of these chips", software);
}

}  // namespace

std::string describe(const Interval& interval, double seconds) {
  if (interval.regime == Regime::measured)
    return fmt::format("{} to {}, in 8 of 10 cases, by the errors of the measured kernels on other shapes",
                       format_seconds(interval.low * seconds), format_seconds(interval.high * seconds));
  return fmt::format("{} to {}, as 8 of 10 published runs {}", format_seconds(interval.low * seconds),
                     format_seconds(interval.high * seconds), describe_basis(interval));
}

}  // namespace motley
