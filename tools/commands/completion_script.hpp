// Scripts by which bash, zsh and fish complete the words of a program. Those of bash and zsh walk the words before the
// cursor in the same way: to the command that they name, to the option whose value is missing, and to the place of a
// positional argument. fish does this itself, but for the command. Read next: completion.cpp.
#pragma once

#include <string>

#include "tools/commands/command_words.hpp"

namespace motley {

std::string bash_completion(const CommandWords& program);
std::string zsh_completion(const CommandWords& program);
std::string fish_completion(const CommandWords& program);

}  // namespace motley
