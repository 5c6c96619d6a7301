// The long and the short name of each degree of parallelism in files and on the command line.
#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace motley {

inline constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kDegreeNames = {{
    {"tensor_parallel", "tp"},
    {"pipeline_parallel", "pp"},
    {"data_parallel", "dp"},
    {"context_parallel", "cp"},
    {"expert_parallel", "ep"},
    {"expert_tensor_parallel", "etp"},
}};

// The other name of the key; empty: it has one name.
constexpr std::string_view other_name(std::string_view key) {
  for (const auto& [long_name, short_name] : kDegreeNames) {
    if (key == long_name) return short_name;
    if (key == short_name) return long_name;
  }
  return {};
}

}  // namespace motley
