// How a rank is started on another host: by ssh, and by a shell there that takes what the rank needs to know from its
// input, where no list of processes shows it. The input is also the rank's lifeline: signals come over it, and when it
// ends, so does the rank. Read next: hw/launch/launch.hpp.
#pragma once

#include <string>
#include <vector>

#include "hw/launch/binding.hpp"

namespace motley {

// Runs a command in `folder` on the rank's host, on its processors. `ssh` is searched in PATH and asks no questions.
// Its exit code is the command's (128 + signal if a signal ended it), or 255 where ssh itself fails.
std::vector<std::string> ssh_command(const RankBinding& rank, const std::string& folder,
                                     const std::vector<std::string>& command);
// What its input begins with: the variables ("NAME=value") that the command gets there. After it, "TERM\n" sends such a
// signal to the command's processes. The end of the input kills them.
std::string remote_input(const std::vector<std::string>& variables);

}  // namespace motley
