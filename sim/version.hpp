// Which SimGrid imagines here. Its version is asked of the library that is loaded, not of the
// header.
#pragma once

#include <string>

namespace motley {

std::string simgrid_version();

}  // namespace motley
