// What commands ask of the command line. CLI11 reads it; no other file sees that library, which takes seconds to
// compile. Read next: command.hpp.
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

// An option, flag or positional argument of a command. What the user gives and it does not allow is refused.
class Option {
 public:
  Option required() const;
  Option not_with(const Option& other) const;
  Option not_negative() const;
  Option between(int least, int most) const;
  Option between(double least, double most) const;
  Option one_of(const std::vector<std::string>& choices) const;
  Option shows_default() const;  // in --help: what the value is now

 private:
  friend class Command;
  explicit Option(CLI::Option* option) : option_(option) {}
  CLI::Option* option_;
};

// What the user's words ask for, run when all of them were understood.
using CommandBody = std::function<Exit()>;

// A command of the program, or the program itself. Values are filled in when the command line is read, and live at
// least as long as the CommandLine.
class Command {
 public:
  // One that must be named behind this one, as must one of its siblings.
  Command subcommand(const std::string& name, const std::string& description) const;
  // `names`: "--steps", "-n,--ranks", or, for what stands without a name, "scenario".
  Option option(const std::string& names, std::string& value, const std::string& description) const;
  Option option(const std::string& names, std::optional<std::string>& value,
                const std::string& description) const;
  Option option(const std::string& names, std::vector<std::string>& value,
                const std::string& description) const;
  Option option(const std::string& names, int& value, const std::string& description) const;
  Option option(const std::string& names, std::int64_t& value, const std::string& description) const;
  Option option(const std::string& names, double& value, const std::string& description) const;
  Option option(const std::string& names, std::optional<double>& value, const std::string& description) const;
  Option flag(const std::string& name, bool& value, const std::string& description) const;
  // The end of its --help: a line that somebody could type, and the exit codes.
  void example(const std::string& line) const;
  // What it does when it is the one that is named.
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
  // The body of the command that was named. No body: all is said, here or by --help and --version, and `exit` is the
  // program's exit code. Words that are not understood are logged as an error, with a hint.
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
