// How far measured steps lay from what was predicted of them, in the regime that a prediction is in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace motley {

enum class Regime : std::uint8_t {
  calibrated,  // the software is named, and figures of every chip were fitted to runs of it
  similar,     // it is named, but not known on every chip
  unseen       // it is not named
};
std::string_view name_of(Regime regime);

// 80 % of the runs lay between `low` and `high` times their predicted steps.
struct Interval {
  Regime regime = Regime::unseen;
  double low = 1, high = 1;
  std::string source;
  bool operator==(const Interval&) const = default;
};
inline constexpr double kIntervalShare = 0.8;

}  // namespace motley
