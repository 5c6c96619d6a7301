// The command line as commands see it. CLI11 reads it; only command_line.cpp includes that library, which takes seconds
// to compile. Read next: command.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace motley {

// An option, flag or positional argument of a command. Values that it does not allow are refused.
class Option {
 public:
  Option required() const;
  Option not_with(const Option& other) const;
  Option not_negative() const;
  Option between(int least, int most) const;
  Option between(double least, double most) const;
  Option one_of(const std::vector<std::string>& choices) const;
  Option repeats() const;        // of a list: takes one value each time that it is given
  Option shows_default() const;  // --help shows the value that it has now

 private:
  friend class Command;
  explicit Option(CLI::Option* option) : option_(option) {}
  CLI::Option* option_;
};

// The work of the command that the user named; it runs after all words were understood.
using CommandBody = std::function<Exit()>;

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

 private:
  friend class CommandLine;
  Command(CLI::App& app, CommandBody& chosen) : app_(&app), chosen_(&chosen) {}
  CLI::App* app_;
  CommandBody* chosen_;
};

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version = {});
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  Command program();
  // The body of the command that the user named. No body: --help, --version or an error has already been printed, and
  // `exit` is the program's exit code. Words that are not understood are logged as an error, with a hint.
  struct Read {
    CommandBody body;
    Exit exit = Exit::ok;
  };
  Read read(int argc, const char* const* argv);

 private:
  std::unique_ptr<CLI::App> app_;
  CommandBody chosen_;
};

}  // namespace motley
