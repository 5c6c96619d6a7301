// The version of SimGrid that simulates here: that of the loaded library, not that of the header.
#pragma once

#include <string>

namespace motley {

std::string simgrid_version();

}  // namespace motley
