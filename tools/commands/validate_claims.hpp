// Claims of published systems beside predictions, for tools/commands/validate.cpp. Read next:
// tools/commands/validate_claims.cpp.
#pragma once

#include <string>

namespace motley {

std::string validate_claims(bool json);

}  // namespace motley
