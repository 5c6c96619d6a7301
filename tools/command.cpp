#include "tools/command.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace motley {

std::string footer(const std::string& example) {
  return "Example:\n  " + example +
         "\n\n"
         "Exit codes: 0 ok, 1 the run failed, 2 bad input, 3 impossible (memory, degrees,\n"
         "reachability), 4 a comparison failed, 5 hardware or an optional part is missing,\n"
         "130 interrupted.";
}

void write_result(const std::string& text, const std::string& path) {
  if (path.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0)
      throw RunFailure(std::string("cannot write to stdout: ") + std::strerror(errno));
    return;
  }
  // Beside the file and then renamed: a reader never sees half a result.
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(partial, path, error);
  if (!file || error)
    throw Refusal(Exit::usage, "unwritable-file", {.file = path}, "cannot be written",
                  "does its folder exist, and may you write there?");
}

}  // namespace motley
