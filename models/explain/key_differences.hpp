// The values that differ in two texts of one kind (a printed strategy, cluster, transformer), key by key. The meaning
// of keys is not known here; `source`, the origin of a figure, is not compared. Read next:
// models/explain/explain.hpp.
#pragma once

#include <string>
#include <vector>

namespace motley {

struct KeyDifference {
  std::string key;   // "groups.ib.nics.roce.bandwidth": items by their `name` or `kind`, else by number
  std::string a, b;  // empty: that text does not have the key
  bool operator==(const KeyDifference&) const = default;
};

// Differences in the order of `a`, then keys that only `b` has. Both texts must be valid YAML.
std::vector<KeyDifference> key_differences(const std::string& a, const std::string& b);

}  // namespace motley
