// Figures and switches that name their source, and their form as YAML: {value: 80 GB, source: "NVIDIA, 2021-06"}.
#pragma once

#include <optional>
#include <string>

#include "models/base/units.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {

// A figure and where it is from: "NVIDIA A100 datasheet, 2021-06" or "assumed". Nobody gave it: 0, from "".
struct Sourced {
  double value = 0;
  std::string source;
  bool operator==(const Sourced&) const = default;
};

// A choice and where it is from. Nobody made it: false, from "".
struct SourcedSwitch {
  bool value = false;
  std::string source;
  bool operator==(const SourcedSwitch&) const = default;
};

// A figure without a dimension is a plain number. The readers refuse a node that is no such map, a value that is not of
// that dimension, and one that `sign` excludes.
Sourced read_sourced(const Yaml& node, std::optional<Dimension> dimension, Sign sign);
std::string print(const Sourced& figure, std::optional<Dimension> dimension);
// The value of a switch is written as 0 or 1. The reader refuses any other.
SourcedSwitch read_switch(const Yaml& node);
std::string print(const SourcedSwitch& choice);

}  // namespace motley
