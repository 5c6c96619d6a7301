// The values that are not the same in two texts of one kind (a printed strategy, cluster, transformer), key by key.
// What keys mean is not known here; where a figure is from (`source`) is no difference. Read next:
// models/explain/explain.hpp.
#pragma once

#include <string>
#include <vector>

namespace motley {

struct KeyDifference {
  std::string key;   // "groups.ib.nics.roce.bandwidth": items by their `name` or `kind`, else by number
  std::string a, b;  // empty: that text has no such key
  bool operator==(const KeyDifference&) const = default;
};

// In the order of `a`, then what is only in `b`. Both are YAML that reads.
std::vector<KeyDifference> key_differences(const std::string& a, const std::string& b);

}  // namespace motley
