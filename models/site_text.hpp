// What a site draws and pays beside its chips, as YAML. Only models/cluster_text.cpp and models/scenario.cpp include
// it.
#pragma once

#include <string>

#include "models/cluster.hpp"
#include "models/yaml_reader.hpp"

namespace motley {

Site read_site(const Yaml& node);
// One line, without indent or newline, as the reader takes it.
std::string print(const Site& site);

}  // namespace motley
