// The interval around predicted steps in which measured steps lay, and the regime of a prediction.
#pragma once

#include <cstdint>
#include <string>

#include "models/base/words.hpp"

namespace motley {

enum class Regime : std::uint8_t {
  measured,  // the chips' kernels were measured: from the errors of their speeds on shapes that were held out
  calibrated,  // the scenario names its software, and figures of every chip were fitted to runs of that
               // software
  similar,     // the scenario names its software; figures of some chip are those of a chip of its family
  unseen       // the scenario does not name its software, or nothing is known of it on some chip's family
};
template <>
inline constexpr auto kWords<Regime> = words("measured", "calibrated", "similar", "unseen");

// 80 % of the measured steps lay between `low` and `high` times their predicted steps.
struct Interval {
  Regime regime = Regime::unseen;
  double low = 1, high = 1;
  std::string source;
  std::string software;  // whose figures are predicted; empty: nobody's, the chips' own figures
  bool operator==(const Interval&) const = default;
};
inline constexpr double kIntervalShare = 0.8;

// What is predicted for a scenario that names no software, and the word for no software at all.
inline constexpr const char* kUsualSoftware = "usual";
inline constexpr const char* kNoSoftware = "none";

}  // namespace motley
