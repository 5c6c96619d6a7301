// Predicted collectives beside measured ones, for tools/commands/validate.cpp. Read next:
// tools/commands/validate_collectives.cpp.
#pragma once

#include <string>
#include <vector>

namespace motley {

// Returns text or JSON for those tables. No tables: the one that ships.
std::string validate_collectives(const std::vector<std::string>& tables, bool rows, bool json);

}  // namespace motley
