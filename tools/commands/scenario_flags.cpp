#include "tools/commands/scenario_flags.hpp"

namespace motley {

void add_scenario(const Command& command, ScenarioFlags& flags) {
  command.option("scenario", flags.scenario, kScenarioHelp).required();
  add_settings(command, flags.settings);
}

void add_settings(const Command& command, std::vector<std::string>& settings) {
  command
      .option("--set", settings,
              "change a value of the scenario, as strategy.tensor_parallel=8 or "
              "cluster.groups.0.nics.0.bandwidth=400Gb/s; may be given several times")
      .repeats();
}

}  // namespace motley
