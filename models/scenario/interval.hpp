// The interval around predicted steps in which measured steps lay, and the regime of a prediction.
#pragma once

#include <cstdint>
#include <string>

#include "models/base/words.hpp"

namespace motley {

enum class Regime : std::uint8_t {
  calibrated,  // the scenario names its software, and figures of every chip were fitted to runs of that
               // software
  similar,     // the scenario names its software, but not every chip has figures fitted to runs of it
  unseen       // the scenario does not name its software
};
template <>
inline constexpr auto kWords<Regime> = words("calibrated", "similar", "unseen");

// 80 % of the measured steps lay between `low` and `high` times their predicted steps.
struct Interval {
  Regime regime = Regime::unseen;
  double low = 1, high = 1;
  std::string source;
  bool operator==(const Interval&) const = default;
};
inline constexpr double kIntervalShare = 0.8;

}  // namespace motley
