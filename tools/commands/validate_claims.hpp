// What the published systems claim beside predictions, for command_validate.cpp. Read next:
// tools/commands/validate_claims.cpp.
#pragma once

#include <string>

namespace motley {

std::string validate_claims(bool json);

}  // namespace motley
