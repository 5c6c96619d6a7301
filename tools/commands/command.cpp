#include "tools/command.hpp"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace motley {

Exit run(const Chosen& chosen) {
  try {
    return chosen();
  } catch (const Refusal& refusal) {
    spdlog::error("{}", refusal.what());
    return refusal.exit_code();
  } catch (const RunFailure& failure) {
    spdlog::error("{}", failure.what());
  } catch (const std::exception& bug) {
    spdlog::error("internal: {}", bug.what());
  }
  return Exit::failed;
}

std::string footer(const std::string& example) {
  return "Example:\n  " + example +
         "\n\n"
         "Exit codes: 0 ok, 1 the run failed, 2 bad input, 3 impossible (memory, degrees,\n"
         "reachability), 4 a comparison failed, 5 hardware or an optional part is missing,\n"
         "130 interrupted.";
}

namespace {

void write_stdout(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return;
  if (errno == EPIPE) {  // the reader has seen enough (`| head`): end as every filter does
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  throw RunFailure(std::string("cannot write to stdout: ") + std::strerror(errno));
}

// A device or a pipe is written as it is; nothing may be renamed over it.
bool is_special(const std::string& path) {
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

}  // namespace

void write_result(const std::string& text, const std::string& path) {
  if (path.empty()) {
    write_stdout(text);
    return;
  }
  // Beside the file and then renamed: a reader never sees half a result.
  const std::string partial = is_special(path) ? path : path + ".partial";
  std::ofstream file(partial, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file && partial != path) std::filesystem::rename(partial, path, error);
  if (!file || error)
    throw Refusal(Exit::usage, "unwritable-file", {.file = path}, "cannot be written",
                  "does its folder exist, and may you write there?");
}

}  // namespace motley
