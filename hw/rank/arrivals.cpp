#include "hw/rank/arrivals.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr const char* kHint = "record it again with this version of Motley";

}  // namespace

void append_values(Places places, std::vector<float>& values) {
  for (const std::span<float> place : places) values.insert(values.end(), place.begin(), place.end());
}

void RecordedValues::fill(Places places) {
  for (const std::span<float> place : places) {
    if (place.size() > values_.size() - taken_)
      throw Refusal(
          Exit::usage, "wrong-recording", {},
          fmt::format("a step receives more than the {} values that were recorded of it", values_.size()),
          kHint);
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(taken_), place.size(), place.begin());
    taken_ += place.size();
  }
}

void RecordedValues::check_all_taken() const {
  if (taken_ != values_.size())
    throw Refusal(
        Exit::usage, "wrong-recording", {},
        fmt::format("a step receives {} values, and {} were recorded of it", taken_, values_.size()), kHint);
}

void KeptArrivals::came(const Step& step, Places places) {
  const std::lock_guard lock(mutex_);
  append_values(places, of_steps_[step]);
}

std::vector<float> KeptArrivals::take(const Step& step) {
  const std::lock_guard lock(mutex_);
  const auto kept = of_steps_.extract(step);
  return kept.empty() ? std::vector<float>() : std::move(kept.mapped());
}

}  // namespace motley
