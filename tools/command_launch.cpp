// motley launch: starts a command once a rank on this host and stays until all have ended. `motley train` does so by
// itself; this is for starting something around it, or ranks of another program. Read next: hw/launch.hpp.
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <vector>

#include "hw/launch.hpp"
#include "tools/command.hpp"

namespace motley {

void add_launch(CLI::App& program, Chosen& chosen) {
  const auto options = std::make_shared<LaunchOptions>();
  CLI::App* command = program.add_subcommand("launch", "Start a command once a rank on this host");
  command->add_option("-n,--ranks", options->rank_count, "how many ranks")->required();
  command->add_option("command", options->command, "after --: the command and its arguments")->required();
  command->footer(footer("motley launch -n 2 -- motley train scenarios/quickstart-train.yaml"));
  command->callback([options, &chosen] {
    chosen = [options] {
      const LaunchResult launched = launch(*options);
      if (!launched.message.empty()) spdlog::error("{}", launched.message);
      return static_cast<Exit>(launched.exit_code);
    };
  });
}

}  // namespace motley
