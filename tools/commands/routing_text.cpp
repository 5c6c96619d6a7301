#include "tools/commands/routing_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace motley {

bool divides_experts(const MeasuredRouting& routing) {
  return std::any_of(routing.layers.begin(), routing.layers.end(),
                     [](const RoutedLayer& layer) { return layer.parts > 1; });
}

double mean_of_steps(const std::vector<double>& loads, std::size_t skipped) {
  const auto first = loads.begin() + static_cast<std::ptrdiff_t>(std::min(skipped, loads.size()));
  return std::accumulate(first, loads.end(), 0.0) / static_cast<double>(loads.end() - first);
}

nlohmann::ordered_json to_json(const MeasuredRouting& routing) {
  nlohmann::ordered_json json = {{"busiest_rank", mean_of_steps(routing.busiest_rank)},
                                 {"busiest_expert", mean_of_steps(routing.busiest_expert)},
                                 {"busiest_rank_of_steps", routing.busiest_rank},
                                 {"busiest_expert_of_steps", routing.busiest_expert}};
  auto& layers = json["layers"] = nlohmann::ordered_json::array();
  for (const RoutedLayer& layer : routing.layers)
    layers.push_back({{"layer", layer.layer},
                      {"ranks", layer.parts},
                      {"busiest_rank", layer.busiest_rank},
                      {"busiest_expert", layer.busiest_expert},
                      {"shares", layer.shares}});
  return json;
}

MeasuredRouting routing_from(const nlohmann::ordered_json& json) {
  MeasuredRouting routing;
  json.at("busiest_rank_of_steps").get_to(routing.busiest_rank);
  json.at("busiest_expert_of_steps").get_to(routing.busiest_expert);
  for (const auto& layer : json.at("layers"))
    routing.layers.push_back({{layer.at("layer").get<int>(), layer.at("ranks").get<std::int64_t>()},
                              layer.at("busiest_rank").get<double>(),
                              layer.at("busiest_expert").get<double>(),
                              layer.at("shares").get<std::vector<double>>()});
  return routing;
}

std::string describe(const MeasuredRouting& routing) {
  const double expert = mean_of_steps(routing.busiest_expert);
  if (!divides_experts(routing))
    return fmt::format("the busiest expert had {:.2f} times its even share", expert);
  return fmt::format(
      "the busiest rank of experts had {:.2f} times its even share, the busiest expert {:.2f} times",
      mean_of_steps(routing.busiest_rank), expert);
}

}  // namespace motley
