// A site as YAML: its power usage effectiveness, electricity, carbon, and the power of nodes without their chips.
// Clusters, groups and scenarios may have one.
#pragma once

#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

Site read_site(const Yaml& node);
// Prints one line without indent or newline, which the reader reads back.
std::string print(const Site& site);

}  // namespace motley
