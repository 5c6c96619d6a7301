// How tokens chose experts in real steps, as `motley train` prints it and as other commands read it back. Read next:
// models/program/expert_load.hpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/program/expert_load.hpp"

namespace motley {

nlohmann::ordered_json to_json(const MeasuredRouting& routing);
MeasuredRouting routing_from(const nlohmann::ordered_json& json);
// One line, without its end.
std::string describe(const MeasuredRouting& routing);

// Whether ranks divide the experts of any layer.
bool divides_experts(const MeasuredRouting& routing);
// The mean over steps, without the first `skipped` ones.
double mean_of_steps(const std::vector<double>& loads, std::size_t skipped = 0);

}  // namespace motley
