// Figures and switches that name their source, and their form as YAML: {value: 80 GB, source: "NVIDIA, 2021-06"}.
#pragma once

#include <optional>
#include <string>

#include "models/base/units.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {

// A figure and its source: "NVIDIA A100 datasheet, 2021-06" or "assumed". A figure that was not given is 0, with an
// empty source.
struct Sourced {
  double value = 0;
  std::string source;
  bool operator==(const Sourced&) const = default;
};

// A choice and its source. A choice that was not given is false, with an empty source.
struct SourcedSwitch {
  bool value = false;
  std::string source;
  bool operator==(const SourcedSwitch&) const = default;
};

// Read and print a figure. Without a dimension it is a plain number. The readers refuse a node that is no such map, a
// value of another dimension, and a value that `sign`, or the bounds of a plain number, exclude.
Sourced read_sourced(const Yaml& node, Dimension dimension, Sign sign);
Sourced read_sourced(const Yaml& node, const NumberBounds& bounds);
std::string print(const Sourced& figure, std::optional<Dimension> dimension);
// Read and print a switch. Its value is written as 0 or 1; other values are refused.
SourcedSwitch read_switch(const Yaml& node);
std::string print(const SourcedSwitch& choice);

}  // namespace motley
