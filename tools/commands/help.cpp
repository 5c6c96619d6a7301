// motley help: what --help of a command prints, and with --json all commands with their words, as data. Read next:
// command_words.hpp.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/base/json_text.hpp"
#include "tools/commands/command.hpp"

namespace motley {
namespace {

using HelpJson = nlohmann::ordered_json;

struct HelpArguments {
  std::vector<std::string> command;
  bool json = false;
};

HelpJson as_json(const CommandWords& command) {
  HelpJson options = HelpJson::array(), commands = HelpJson::array();
  for (const OptionWords& option : command.options)
    options.push_back({{"names", option.names},
                       {"positional", option.positional},
                       {"description", option.description},
                       {"takes_value", option.takes_value},
                       {"repeats", option.repeats},
                       {"choices", option.choices}});
  for (const CommandWords& each : command.commands) commands.push_back(as_json(each));
  return {{"name", command.name},
          {"description", command.description},
          {"options", options},
          {"commands", commands}};
}

// The words of the command that the path names; the path is one that help() accepts.
const CommandWords& words_at(const CommandWords& root, const std::vector<std::string>& path) {
  const CommandWords* reached = &root;
  for (const std::string& name : path)
    for (const CommandWords& command : reached->commands)
      if (command.name == name) {
        reached = &command;
        break;
      }
  return *reached;
}

Exit run(const Command& program, const HelpArguments& options) {
  const std::string text = program.help(options.command);
  if (options.json)
    write_result(json_text({{"schema", "motley.help/1"},
                            {"command", as_json(words_at(program.words(), options.command))}}),
                 "");
  else
    write_result(text, "");
  return Exit::ok;
}

}  // namespace

void add_help(const Command& program) {
  const auto options = std::make_shared<HelpArguments>();
  const Command command = program.subcommand("help", "Print the help of a command");
  command.option("command", options->command,
                 "as `simulate` or `show program`; default: all commands, a line each");
  command.flag("--json", options->json, "print the commands and their words as JSON (schema motley.help/1)");
  command.example("motley help simulate");
  command.runs([options, program] { return run(program, *options); });
}

}  // namespace motley
