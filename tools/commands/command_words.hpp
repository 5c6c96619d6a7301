// The commands of a program and the words that each takes, as data: for completions and for `motley help --json`. Read
// next: command_line.hpp, completion.cpp.
#pragma once

#include <string>
#include <vector>

namespace motley {

// An option, a flag or a positional argument.
struct OptionWords {
  std::vector<std::string> names;  // "-n", "--ranks"; empty: a positional argument
  std::string positional;          // the name of a positional argument; empty: it is none
  std::string description;
  bool takes_value = false;          // false: a flag
  bool repeats = false;              // whether it takes any number of values
  std::vector<std::string> choices;  // the values that it allows; empty: others, too
};

struct CommandWords {
  std::string name;
  std::string description;
  std::vector<OptionWords> options;
  std::vector<CommandWords> commands;  // the commands inside this one
};

}  // namespace motley
