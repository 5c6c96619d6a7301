#include "models/strategy/partition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "models/base/refusal.hpp"

namespace motley {

std::vector<std::int64_t> even_layers(std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> result;
  for (std::int64_t stage = 0; stage < stages; ++stage)
    result.push_back(layers / stages + (stage < layers % stages ? 1 : 0));
  return result;
}

std::vector<std::int64_t> layers_by_speed(std::int64_t layers, std::span<const double> speeds, double alpha) {
  if (speeds.empty() || layers < static_cast<std::int64_t>(speeds.size()))
    throw Refusal(Exit::infeasible, "impossible-stages", {},
                  fmt::format("{} layers cannot be divided over {} stages", layers, speeds.size()),
                  "at least one layer each");
  const double all = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  std::vector<std::int64_t> result;
  std::int64_t left = layers;
  for (std::size_t i = 0; i + 1 < speeds.size(); ++i) {
    const auto share =
        static_cast<std::int64_t>(std::floor(alpha * speeds[i] / all * static_cast<double>(layers)));
    const auto after = static_cast<std::int64_t>(speeds.size() - i) - 1;
    result.push_back(std::clamp<std::int64_t>(share, 1, left - after));
    left -= result.back();
  }
  result.push_back(left);
  return result;
}

std::int64_t HeteroStages::stages() const {
  std::int64_t count = 0;
  for (const auto& type : layers_by_type) count += static_cast<std::int64_t>(type.size());
  return count;
}

std::int64_t HeteroStages::layers() const {
  std::int64_t count = 0;
  for (const auto& type : layers_by_type) count = std::accumulate(type.begin(), type.end(), count);
  return count;
}

HeteroStages parse_hetero_stages(const std::string& text) {
  const auto refuse = [&](const std::string& why, RefusalSite site = RefusalSite::here()) {
    throw Refusal(
        Exit::infeasible, "impossible-stages", {}, fmt::format("`{}`: {}", text, why),
        "for each type of device the number of its stages, then the layers of each: `2 4 4 3 5 5 5`", site);
  };
  std::istringstream words(text);
  HeteroStages result;
  for (std::int64_t stages = 0; words >> stages;) {
    if (stages < 1 || stages > 1'000'000) refuse(fmt::format("{} stages of a type", stages));
    std::vector<std::int64_t> layers;
    for (std::int64_t count = 0; static_cast<std::int64_t>(layers.size()) < stages && words >> count;) {
      if (count < 1) refuse(fmt::format("a stage of {} layers", count));
      layers.push_back(count);
    }
    if (static_cast<std::int64_t>(layers.size()) < stages)
      refuse(fmt::format("{} stages are announced, {} follow", stages, layers.size()));
    result.layers_by_type.push_back(layers);
  }
  if (!words.eof()) refuse("only whole numbers stand in it");
  if (result.layers_by_type.empty()) refuse("it is empty");
  return result;
}

}  // namespace motley
