// A site as YAML: its power usage effectiveness, electricity, carbon, and what nodes draw without their chips. Clusters
// may have one, and so may their groups and scenarios.
#pragma once

#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

Site read_site(const Yaml& node);
// Prints one line without indent or newline, which the reader takes back.
std::string print(const Site& site);

}  // namespace motley
