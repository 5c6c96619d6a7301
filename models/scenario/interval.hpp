// How far measured steps lay from the predicted ones, in the regime that a prediction is in.
#pragma once

#include <cstdint>
#include <string>

#include "models/base/words.hpp"

namespace motley {

enum class Regime : std::uint8_t {
  calibrated,  // the software is named, and figures of every chip were fitted to runs of it
  similar,     // it is named, but not known on every chip
  unseen       // it is not named
};
template <>
inline constexpr auto kWords<Regime> = words("calibrated", "similar", "unseen");

// 80 % of the runs lay between `low` and `high` times their predicted steps.
struct Interval {
  Regime regime = Regime::unseen;
  double low = 1, high = 1;
  std::string source;
  bool operator==(const Interval&) const = default;
};
inline constexpr double kIntervalShare = 0.8;

}  // namespace motley
