// Reads the text of a shell script into commands: quoting, continued lines, comments, assignments, arrays, and
// variables that the text itself defines. It runs nothing: what only a shell could know ($1, $(hostname)) stays
// unknown, and each character remembers where it was written. Read next: launch_line.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/base/refusal.hpp"

namespace motley {

struct ShellWord {
  std::string text;
  Location where;
  std::string
      unknown;  // a variable that is not defined in the text: "$RANK"; empty: the text is the whole word
};

struct ShellCommand {
  std::vector<ShellWord> assignments;  // NAME=value before the command's first word
  std::vector<ShellWord> words;
};

// Commands without words, which only assign, are left out; their variables are expanded in later commands. Throws
// Refusal("shell-syntax") for quotes and brackets that do not end, and for text that expands without end.
std::vector<ShellCommand> parse_shell(const std::string& text, const std::string& file);

}  // namespace motley
