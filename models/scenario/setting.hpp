// Changes of single values of a scenario, as `--set strategy.tensor_parallel=8` writes them. Read next:
// models/scenario/scenario.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/base/yaml_reader.hpp"

namespace motley {

// One change. The key is a path: keys of maps, and items of lists by their number from 0, by their `name` (a group) or
// `kind` (a NIC); `*` is every item. The value is YAML, so it may be a list or a map; an empty value takes the key out.
struct ScenarioSetting {
  // "strategy.tensor_parallel=8", for messages and for other processes; or an option that says the same: "--tp 8".
  std::string text;
  std::vector<std::string> path;
  std::vector<int> columns;  // where each part of the path begins in `text`, from 1; 0: nowhere
  Yaml value;                // its locations have "--set <text>" as their file
};

// Throws Refusal bad-setting, and what parse_yaml() throws.
ScenarioSetting parse_setting(const std::string& text);
std::vector<ScenarioSetting> parse_settings(const std::vector<std::string>& texts);

// The scenario with the values changed, in their order. A file that a changed value lies in (the scenario's model, its
// cluster, a chip of the cluster) takes the place of its name. `path`: that of the scenario, beside which such files
// are searched. Refuses at the key's place in the setting: no-such-item, not-a-map.
Yaml with_settings(const Yaml& scenario, const std::string& path,
                   const std::vector<ScenarioSetting>& settings);

// The scenario as text that parse_yaml() reads back. Comments and the form of its lists are lost.
std::string print_yaml(const Yaml& node);

}  // namespace motley
