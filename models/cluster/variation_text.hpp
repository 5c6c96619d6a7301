// `slow` and `variation` as YAML: keys of clusters and of scenarios.
#pragma once

#include <string>
#include <vector>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

// Reads one map or a list of maps. Refuses a chip or node that the cluster does not have; the cluster is built.
std::vector<Slow> read_slow(const Yaml& node, const Cluster& cluster);
Variation read_variation(const Yaml& node);
// Print one line without indent or newline, which the readers read back.
std::string print(const Slow& slow);
std::string print(const Variation& variation);
// The spread for people: "sd 2 %", or "0.9 to 1.02".
std::string describe(const Spread& spread);

}  // namespace motley
