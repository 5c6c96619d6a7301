// Hides CLI11 behind the few functions that commands need, and adds hints for words that CLI11 does not understand.
#include "tools/commands/command_line.hpp"

#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace motley {

Option Option::required() const {
  option_->required();
  return *this;
}
Option Option::not_with(const Option& other) const {
  option_->excludes(other.option_);
  return *this;
}
Option Option::not_negative() const {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}
Option Option::between(int least, int most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}
Option Option::between(double least, double most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}
Option Option::one_of(const std::vector<std::string>& choices) const {
  option_->check(CLI::IsMember(choices));
  return *this;
}
Option Option::repeats() const {
  option_->allow_extra_args(false);
  return *this;
}
Option Option::shows_default() const {
  option_->capture_default_str();
  return *this;
}

Command Command::subcommand(const std::string& name, const std::string& description) const {
  app_->require_subcommand(1);
  return {*app_->add_subcommand(name, description), *chosen_};
}
Option Command::option(const std::string& names, std::string& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, std::optional<std::string>& value,
                       const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, std::vector<std::string>& value,
                       const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, int& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, std::int64_t& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, double& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, std::optional<double>& value,
                       const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, std::function<void(const std::string&)> take,
                       const std::string& description) const {
  const auto taken = [names, take = std::move(take)](const std::string& value) {
    try {
      take(value);
    } catch (const Refusal& refusal) {
      throw CLI::ValidationError(names, refusal.what());
    }
  };
  return Option(app_->add_option_function<std::string>(names, taken, description));
}
Option Command::flag(const std::string& name, bool& value, const std::string& description) const {
  return Option(app_->add_flag(name, value, description));
}

void Command::example(const std::string& line) const {
  app_->footer("Example:\n  " + line +
               "\n\n"
               "Exit codes: 0 ok, 1 the run failed, 2 bad input, 3 impossible (memory, degrees,\n"
               "reachability), 4 a comparison failed, 5 hardware or an optional part is missing,\n"
               "130 interrupted.");
}

void Command::runs(CommandBody body) const {
  app_->callback([chosen = chosen_, body = std::move(body)] { *chosen = body; });
}

namespace {

// The last command that the arguments name: for `motley show program --jsom` it is program, with path "motley show
// program".
struct Reached {
  const CLI::App* command = nullptr;
  std::string path;
  std::string unknown;  // the word where a command should be but is not; empty: there is no such word
  std::vector<std::string> known;  // the commands that could be there
};

Reached reach(const CLI::App& program, const std::vector<std::string>& arguments) {
  Reached reached{.command = &program, .path = program.get_name(), .unknown = {}, .known = {}};
  for (const std::string& argument : arguments) {
    const std::vector<const CLI::App*> commands = reached.command->get_subcommands({});
    if (commands.empty() || argument.starts_with('-')) break;
    const auto same = std::find_if(commands.begin(), commands.end(),
                                   [&](const CLI::App* each) { return each->get_name() == argument; });
    if (same == commands.end()) {
      reached.unknown = argument;
      for (const CLI::App* each : commands) reached.known.push_back(each->get_name());
      break;
    }
    reached.command = *same;
    reached.path += " " + argument;
  }
  return reached;
}

// Suggests the known option that is nearest to the first unknown one; if all are known, says how to get help.
std::string hint_for(const Reached& reached, const std::vector<std::string>& arguments) {
  std::vector<std::string> known;
  for (const CLI::Option* option : reached.command->get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    if (name.starts_with("--") && name != "--" && !is_known) return suggest(name, known);
  }
  return "try `" + reached.path + " --help`";
}

void log_misunderstood(const CLI::App& program, const CLI::ParseError& error,
                       const std::vector<std::string>& arguments) {
  const Reached reached = reach(program, arguments);
  if (reached.unknown.empty()) {
    spdlog::error("{}\n  hint: {}", error.what(), hint_for(reached, arguments));
    return;
  }
  const std::string above = reached.path.substr(program.get_name().size());
  spdlog::error("unknown command `{}{}`\n  hint: {}", above.empty() ? "" : above.substr(1) + " ",
                reached.unknown, suggest(reached.unknown, reached.known));
}

}  // namespace

CommandLine::CommandLine(const std::string& name, const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, name)) {
  if (!version.empty()) app_->set_version_flag("--version", version);
}
CommandLine::~CommandLine() = default;

Command CommandLine::program() { return {*app_, chosen_}; }

CommandLine::Read CommandLine::read(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return {{}, static_cast<Exit>(app_->exit(error))};
    log_misunderstood(*app_, error, {argv + 1, argv + argc});
    return {{}, Exit::usage};
  }
  return {chosen_, Exit::ok};
}

}  // namespace motley
