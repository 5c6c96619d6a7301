// The line that starts a training script: its launcher (torchrun, python, deepspeed, srun, mpirun), the script, and the
// script's arguments. Read next: megatron_import.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/frameworks/shell_text.hpp"

namespace motley {

struct LaunchLine {
  std::optional<std::int64_t> ranks;  // processes that start in all; nothing: the line does not say
  Location ranks_where;               // where the line says it
  std::vector<ShellWord> arguments;   // of the script
  std::vector<ShellWord> launcher;    // words before the script that do not say how many ranks start
  Location where;
};

// Finds the one command of a script that trains: it names a file *.py, or begins with arguments (--num-layers 12).
// Throws Refusal("no-training-command") where there is none, and where there are several.
LaunchLine read_launch_line(const std::string& text, const std::string& file);

}  // namespace motley
