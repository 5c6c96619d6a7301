// The command line as commands see it. CLI11 reads it; only command_line.cpp includes that library, which takes seconds
// to compile. Read next: command.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"
#include "tools/commands/command_words.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace motley {

// The work of the command that the user named; it runs after all words were understood.
using CommandBody = std::function<Exit()>;

// What a CommandLine knows beyond what CLI11 does.
struct CommandState {
  CommandBody chosen;
  std::map<const CLI::Option*, std::vector<std::string>> choices;  // what one_of() allows
  std::optional<Refusal>
      refused;  // why an option refused its value while the words were read; nothing: none did
};

// An option, flag or positional argument of a command. Values that it does not allow are refused.
class Option {
 public:
  Option required() const;
  Option not_with(const Option& other) const;
  Option only_with(const Option& other) const;
  Option not_negative() const;
  Option between(int least, int most) const;
  Option between(double least, double most) const;
  Option one_of(const std::vector<std::string>& choices) const;
  Option repeats() const;        // of a list: takes one value each time that it is given
  Option shows_default() const;  // --help shows the value that it has now

 private:
  friend class Command;
  Option(CLI::Option* option, CommandState& state) : option_(option), state_(&state) {}
  CLI::Option* option_;
  CommandState* state_;
};

// A command of the program, or the program itself. Values are filled in when the command line is read, and live at
// least as long as the CommandLine.
class Command {
 public:
  // Adds a command inside this one. The user must name one of a command's subcommands.
  Command subcommand(const std::string& name, const std::string& description) const;
  // `names`: "--steps", "-n,--ranks" or, for a positional argument, "scenario".
  Option option(const std::string& names, std::string& value, const std::string& description) const;
  Option option(const std::string& names, std::optional<std::string>& value,
                const std::string& description) const;
  Option option(const std::string& names, std::vector<std::string>& value,
                const std::string& description) const;
  Option option(const std::string& names, int& value, const std::string& description) const;
  Option option(const std::string& names, std::int64_t& value, const std::string& description) const;
  Option option(const std::string& names, double& value, const std::string& description) const;
  Option option(const std::string& names, std::optional<double>& value, const std::string& description) const;
  // Gives each value to `take`, which may throw a Refusal, while the command line is read.
  Option option(const std::string& names, std::function<void(const std::string&)> take,
                const std::string& description) const;
  Option flag(const std::string& name, bool& value, const std::string& description) const;
  // Ends --help with a line that a user could type, and the exit codes.
  void example(const std::string& line) const;
  // Sets what the command does if the user names it.
  void runs(CommandBody body) const;
  // The commands inside this one, with all words that they take.
  CommandWords words() const;
  // The text of --help of this command, or of the one inside it that the path names. Throws Refusal unknown-command.
  std::string help(const std::vector<std::string>& path) const;

 private:
  friend class CommandLine;
  Command(CLI::App& app, CommandState& state) : app_(&app), state_(&state) {}
  CLI::App* app_;
  CommandState* state_;
};

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version = {});
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  Command program();
  // The body of the command that the user named. If the words are not understood, it throws Refusal unknown-command or
  // bad-command-line. After --help and --version, which are answered here, it does nothing; without any word this
  // prints the program's help, as git and cargo do.
  CommandBody read(int argc, const char* const* argv);

 private:
  std::unique_ptr<CLI::App> app_;
  CommandState state_;
};

}  // namespace motley
