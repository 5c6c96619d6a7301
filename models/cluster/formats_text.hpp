// The formats in which chips multiply matrices, as a table and as JSON: which formats a chip has, and how fast it is
// in each. A chip cannot train in a format that it lacks. platforms/chips gives the sources of the figures. Read
// next: models/base/format.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/cluster/chip.hpp"

namespace motley {

std::string formats_text(const std::vector<Chip>& chips);
std::string formats_json(const std::vector<Chip>& chips);  // schema "motley.formats/1"

}  // namespace motley
