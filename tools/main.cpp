// The `motley` program: reads the command line, runs one command, turns what it throws into an exit
// code. It decides nothing about training; every command is a file of its own. Read next:
// command.hpp, command_simulate.cpp.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "tools/command.hpp"

namespace motley {
namespace {

extern "C" void exit_interrupted(int) { _exit(static_cast<int>(Exit::interrupted)); }

// Logs go to stderr as "motley: error: ...", coloured only for a person who looks on.
void set_up_logs() {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  const char* terminal = std::getenv("TERM");
  const bool plain = std::getenv("NO_COLOR") != nullptr || isatty(STDERR_FILENO) == 0 ||
                     terminal == nullptr || std::strcmp(terminal, "dumb") == 0;
  sink->set_color_mode(plain ? spdlog::color_mode::never : spdlog::color_mode::always);
  auto logger = std::make_shared<spdlog::logger>("motley", sink);
  logger->set_pattern("motley: %^%l%$: %v");
  spdlog::set_default_logger(logger);
}

// How far the arguments name commands: `motley show program --jsom` is at program, path "show program".
struct Named {
  const CLI::App* command = nullptr;
  std::string path;                // with a space behind it, when not empty
  std::string unknown;             // the word where a command should stand
  std::vector<std::string> known;  // what could stand there
};
Named named(const CLI::App& program, const std::vector<std::string>& arguments) {
  Named found{.command = &program, .path = {}, .unknown = {}, .known = {}};
  for (const std::string& argument : arguments) {
    const std::vector<const CLI::App*> commands = found.command->get_subcommands({});
    if (commands.empty() || argument.rfind('-', 0) == 0) break;
    const auto same = std::find_if(commands.begin(), commands.end(),
                                   [&](const CLI::App* each) { return each->get_name() == argument; });
    if (same == commands.end()) {
      found.unknown = argument;
      for (const CLI::App* each : commands) found.known.push_back(each->get_name());
      break;
    }
    found.command = *same;
    found.path += argument + " ";
  }
  return found;
}

// The first option that the command does not know, and the nearest that it does; else where help is.
std::string hint_for(const Named& found, const std::vector<std::string>& arguments) {
  std::vector<std::string> known;
  for (const CLI::Option* option : found.command->get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    if (name.rfind("--", 0) == 0 && name != "--" && !is_known) return suggest(name, known);
  }
  return "try `motley " + found.path + "--help`";
}

Exit refuse_command_line(const CLI::App& program, const CLI::ParseError& error,
                         const std::vector<std::string>& arguments) {
  const Named found = named(program, arguments);
  if (!found.unknown.empty())
    spdlog::error("unknown command `{}{}`\n  hint: {}", found.path, found.unknown,
                  suggest(found.unknown, found.known));
  else
    spdlog::error("{}\n  hint: {}", error.what(), hint_for(found, arguments));
  return Exit::usage;
}

Exit main_of(int argc, char** argv) {
  set_up_logs();
  std::signal(SIGINT, exit_interrupted);
  std::signal(SIGPIPE, SIG_IGN);

  CLI::App program{"Rehearse a training run on a cluster of unlike chips, then perform it.", "motley"};
  program.set_version_flag("--version", MOTLEY_VERSION);
  program.require_subcommand(1);
  program.footer(footer("motley simulate scenarios/quickstart.yaml"));
  Chosen chosen;
  add_simulate(program, chosen);
  add_train(program, chosen);
  add_compare(program, chosen);
  add_explain(program, chosen);
  add_launch(program, chosen);
  add_check(program, chosen);
  add_show(program, chosen);
  add_validate(program, chosen);
  add_doctor(program, chosen);

  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return static_cast<Exit>(program.exit(error));
    return refuse_command_line(program, error, arguments);
  }
  return run(chosen);
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  try {
    return static_cast<int>(motley::main_of(argc, argv));
  } catch (const std::exception& bug) {
    std::fputs(bug.what(), stderr);
    return static_cast<int>(motley::Exit::failed);
  }
}
