// motley launch: starts a command once for each rank on this host and waits until all have ended. `motley train` does
// so by itself; use this to start another program around it, or ranks of another program. Read next:
// hw/launch/launch.hpp.
#include "hw/launch/launch.hpp"

#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <vector>

#include "tools/commands/command.hpp"

namespace motley {

void add_launch(const Command& program) {
  const auto options = std::make_shared<LaunchOptions>();
  const auto no_bind = std::make_shared<bool>(false);
  const Command command = program.subcommand("launch", "Start a command once a rank on this host");
  command.option("-n,--ranks", options->rank_count, "how many ranks").required();
  command.option("command", options->command, "after --: the command and its arguments").required();
  command.flag("--no-bind", *no_bind, "let every rank run on any processor, instead of on its own ones");
  command.example("motley launch -n 2 -- motley train scenarios/quickstart-train.yaml");
  command.runs([options, no_bind] {
    options->bind = !*no_bind;
    const LaunchResult launched = launch(*options);
    if (!launched.message.empty()) spdlog::error("{}", launched.message);
    return static_cast<Exit>(launched.exit_code);
  });
}

}  // namespace motley
