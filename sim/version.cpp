#include "sim/version.hpp"

#include <xbt/base.h>

// base.h must come first: version.h uses its macros without including it.
#include <simgrid/version.h>

namespace motley {

std::string simgrid_version() {
  int major = 0;
  int minor = 0;
  int patch = 0;
  sg_version_get(&major, &minor, &patch);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

}  // namespace motley
