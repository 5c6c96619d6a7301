#include "models/base/json_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

void refuse_infinite_figures(const nlohmann::ordered_json& json, const std::string& path) {
  if (json.is_structured()) {
    for (const auto& [key, value] : json.items()) refuse_infinite_figures(value, path + "/" + key);
    return;
  }
  if (json.is_number_float() && !std::isfinite(json.get<double>()))
    throw Refusal(Exit::infeasible, "not-finite", {},
                  fmt::format("a figure of the result is {}: {}", json.get<double>(), path),
                  "are the figures of chips and networks in the right units?");
}

}  // namespace

std::string json_text(const nlohmann::ordered_json& json) {
  refuse_infinite_figures(json, "");
  return json.dump(2) + "\n";
}

}  // namespace motley
