// The figures of a row as JSON, in tables and in files of rows.
#pragma once

#include <nlohmann/json.hpp>

#include "models/sweep/sweep_table.hpp"

namespace motley {

nlohmann::ordered_json figures_json(const SweepFigures& figures);  // what is not known is left out
// Throws nlohmann::json::exception where a figure is missing or no number.
SweepFigures figures_from(const nlohmann::ordered_json& json);

}  // namespace motley
