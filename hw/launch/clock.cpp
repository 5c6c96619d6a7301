#include "hw/launch/clock.hpp"

#include <algorithm>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr double kGainMost = 1e-3;  // of one clock on another, seconds in a second

ClockReading read_clock(const ClockExchange& exchange) {
  const double round_trip_s = exchange.received_s - exchange.sent_s;
  const double most_s = exchange.came_s - exchange.sent_s;           // when it was sent
  const double least_s = exchange.answered_s - exchange.received_s;  // when it was received
  return {exchange.sent_s + round_trip_s / 2, (most_s + least_s) / 2,
          (most_s - least_s + kGainMost * round_trip_s) / 2};
}

}  // namespace

ClockReading read_clock(const std::vector<ClockExchange>& exchanges) {
  MOTLEY_CHECK(!exchanges.empty());
  ClockReading best = read_clock(exchanges.front());
  for (const ClockExchange& exchange : exchanges)
    if (const ClockReading reading = read_clock(exchange); reading.uncertainty_s < best.uncertainty_s)
      best = reading;
  return best;
}

double SharedClock::shared_s(double seconds) const {
  const double span_s = after.at_s - before.at_s;
  if (span_s <= 0) return seconds;
  const double share = (zero_s + seconds - before.at_s) / span_s;
  return seconds + share * (after.offset_s - before.offset_s);
}

double SharedClock::uncertainty_s() const { return std::max(before.uncertainty_s, after.uncertainty_s); }

}  // namespace motley
