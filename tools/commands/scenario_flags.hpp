// The scenario that a command reads: the path or name that a person gives, and what --set changes in it.
#pragma once

#include <string>
#include <vector>

#include "models/scenario/scenario.hpp"
#include "tools/commands/command_line.hpp"

namespace motley {

inline constexpr const char* kScenarioHelp =
    "a file, the name of one that ships (`motley list scenarios`), or - for standard input";

struct ScenarioFlags {
  std::string scenario;
  std::vector<std::string> settings;

  Scenario load() const { return load_scenario(scenario, settings); }
  Yaml read() const { return read_scenario_file(scenario, settings); }
  std::string path() const { return find_scenario(scenario); }
};

// Adds the positional argument, which must be given, and --set.
void add_scenario(const Command& command, ScenarioFlags& flags);
// Adds --set alone, for a command whose positional arguments may be scenarios.
void add_settings(const Command& command, std::vector<std::string>& settings);

}  // namespace motley
