// Lines and words of what measuring programs print. Read next: nccl_tests.hpp, perftest.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/base/refusal.hpp"

namespace motley {

// No message is larger, no measurement lasts longer.
inline constexpr double kMostMessageBytes = 1e15, kMostMeasured_us = 1e12;

// Views into a text that outlives them.
std::vector<std::string_view> lines_of(std::string_view text);
std::vector<std::string_view> words_of(std::string_view line);

// The number that a word is, between 0 and `most`; refuses others ("bad-measurements"), NaN and infinities included.
double to_measured(std::string_view word, double most, const Location& where);

}  // namespace motley
