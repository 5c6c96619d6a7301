// Hides CLI11 behind the few functions that commands need, and adds hints for words that CLI11 does not understand.
#include "tools/commands/command_line.hpp"

#include <fmt/format.h>

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
Option Option::only_with(const Option& other) const {
  option_->needs(other.option_);
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
  state_->choices[option_] = choices;
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
  return {*app_->add_subcommand(name, description), *state_};
}
Option Command::option(const std::string& names, std::string& value, const std::string& description) const {
  return {app_->add_option(names, value, description), *state_};
}
Option Command::option(const std::string& names, std::optional<std::string>& value,
                       const std::string& description) const {
  return {app_->add_option(names, value, description), *state_};
}
Option Command::option(const std::string& names, std::vector<std::string>& value,
                       const std::string& description) const {
  return {app_->add_option(names, value, description), *state_};
}
Option Command::option(const std::string& names, int& value, const std::string& description) const {
  return {app_->add_option(names, value, description), *state_};
}
Option Command::option(const std::string& names, std::int64_t& value, const std::string& description) const {
  return {app_->add_option(names, value, description), *state_};
}
Option Command::option(const std::string& names, double& value, const std::string& description) const {
  return {app_->add_option(names, value, description), *state_};
}
Option Command::option(const std::string& names, std::optional<double>& value,
                       const std::string& description) const {
  return {app_->add_option(names, value, description), *state_};
}
Option Command::option(const std::string& names, std::function<void(const std::string&)> take,
                       const std::string& description) const {
  const auto taken = [names, state = state_, take = std::move(take)](const std::string& value) {
    try {
      take(value);
    } catch (const Refusal& refusal) {
      state->refused = refusal;
      throw CLI::ValidationError(names, refusal.what());
    }
  };
  return {app_->add_option_function<std::string>(names, taken, description), *state_};
}
Option Command::flag(const std::string& name, bool& value, const std::string& description) const {
  return {app_->add_flag(name, value, description), *state_};
}

void Command::example(const std::string& line) const {
  app_->footer("Example:\n  " + line +
               "\n\n"
               "Exit codes: 0 ok, 1 the run failed, 2 bad input, 3 impossible (memory, degrees,\n"
               "reachability), 4 a comparison failed, 5 hardware or an optional part is missing,\n"
               "130 interrupted, 143 ended by SIGTERM.");
}

void Command::runs(CommandBody body) const {
  app_->callback([state = state_, body = std::move(body)] { state->chosen = body; });
}

namespace {

// The last command that the arguments name: for `motley show program --jsom` it is program, with path "motley show
// program".
struct Reached {
  const CLI::App* command = nullptr;
  std::string path;     // of the command, with the program's name
  std::string above;    // the same without its last word
  std::string unknown;  // the word where a command should be but is not; empty: there is no such word
  std::vector<std::string> known;  // the commands that could be there
};

Reached reach(const CLI::App& program, const std::vector<std::string>& arguments) {
  Reached reached{.command = &program, .path = program.get_name(), .above = {}, .unknown = {}, .known = {}};
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
    reached.above = reached.path;
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

// Between two hints of one refusal.
constexpr const char* kNextHint = "\n  hint: ";

// The refusal of a word where a command should be.
Refusal unknown_command(const CLI::App& program, const Reached& reached) {
  const std::string above = reached.path.substr(program.get_name().size());
  return Refusal(
      Exit::usage, "unknown-command", {},
      fmt::format("unknown command `{}{}`", above.empty() ? "" : above.substr(1) + " ", reached.unknown),
      suggest(reached.unknown, reached.known));
}

// The refusal of words that CLI11 does not understand, or of a word where a command should be.
Refusal misunderstood(const CLI::App& program, const CLI::ParseError& error,
                      const std::vector<std::string>& words) {
  const Reached reached = reach(program, words);
  if (!reached.unknown.empty()) return unknown_command(program, reached);
  return Refusal(Exit::usage, "bad-command-line", {}, error.what(), hint_for(reached, words));
}

// The refusal of the option itself, with its own hint first.
Refusal with_help(const Refusal& refused, const std::string& what, const std::string& help) {
  const std::size_t own = what.find(kNextHint);
  return Refusal(refused.exit_code(), refused.kind(), refused.where(), what.substr(0, own),
                 refused.hint().empty() ? help : refused.hint() + kNextHint + help, refused.site());
}

OptionWords words_of(const CLI::Option& option, const CommandState& state) {
  OptionWords words;
  for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  if (words.names.empty()) words.positional = option.get_name();
  words.description = option.get_description();
  words.takes_value = option.get_items_expected_max() > 0;
  words.repeats = option.get_items_expected_max() > 1;
  if (const auto choices = state.choices.find(&option); choices != state.choices.end())
    words.choices = choices->second;
  return words;
}

CommandWords words_of(const CLI::App& app, const CommandState& state) {
  CommandWords words{
      .name = app.get_name(), .description = app.get_description(), .options = {}, .commands = {}};
  for (const CLI::Option* option : app.get_options()) words.options.push_back(words_of(*option, state));
  for (const CLI::App* command : app.get_subcommands({})) words.commands.push_back(words_of(*command, state));
  return words;
}

}  // namespace

CommandWords Command::words() const { return words_of(*app_, *state_); }

std::string Command::help(const std::vector<std::string>& path) const {
  const Reached reached = reach(*app_, path);
  if (!reached.unknown.empty()) throw unknown_command(*app_, reached);
  app_->clear();  // a program that has parsed `help` would print the help of that
  return reached.command->help(reached.above);
}

CommandLine::CommandLine(const std::string& name, const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, name)) {
  if (!version.empty()) app_->set_version_flag("-V,--version", version);
}
CommandLine::~CommandLine() = default;

Command CommandLine::program() { return {*app_, state_}; }

CommandBody CommandLine::read(int argc, const char* const* argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.empty()) throw CLI::CallForHelp();
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      Refusal refusal = misunderstood(*app_, error, words);
      if (state_.refused) refusal = with_help(*state_.refused, error.what(), refusal.hint());
      return [refusal]() -> Exit { throw refusal; };
    }
    app_->exit(error);
    return [] { return Exit::ok; };
  }
  return state_.chosen;
}

}  // namespace motley
