// Collectives beside measurements, for command_validate.cpp. Read next: tools/commands/validate_collectives.cpp.
#pragma once

#include <string>
#include <vector>

namespace motley {

// Text, or JSON, of those tables; of the one that ships where there are none.
std::string validate_collectives(const std::vector<std::string>& tables, bool rows, bool json);

}  // namespace motley
