// The formats that chips multiply matrices in, as a table: which they have at all, and how fast. Nothing that a format
// is not in can be trained in it there; the figures' sources stand in platforms/chips. Read next: models/format.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/chip.hpp"

namespace motley {

std::string formats_text(const std::vector<Chip>& chips);
std::string formats_json(const std::vector<Chip>& chips);  // schema "motley.formats/1"

}  // namespace motley
