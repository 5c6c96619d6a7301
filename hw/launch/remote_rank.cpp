#include "hw/launch/remote_rank.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace motley {
namespace {

// For any POSIX shell, in one line for those that are none (csh) and only pass it on. Arguments: the folder, the
// command. The command leads a session of its own; what is left of it when it ends is killed.
constexpr const char* kScript =
    R"(while IFS= read -r v && [ -n "$v" ]; do export "$v"; done; )"
    R"(cd "$1" || exit 127; shift; exec 3<&0; )"
    R"(setsid "$@" </dev/null 3<&- & r=$!; )"
    R"({ while read -r s; do kill -s "$s" -- "-$r" || kill -s "$s" "$r"; done; )"
    R"(kill -s KILL -- "-$r" || kill -s KILL "$r"; } <&3 >/dev/null 2>&1 & w=$!; )"
    R"(wait "$r"; c=$?; kill -s KILL -- "-$r" 2>/dev/null; kill -s KILL "$w" 2>/dev/null; exit "$c")";

std::string quoted(const std::string& word) {
  std::string text;
  for (const char letter : word)
    if (letter == '\'')
      text.append("'\\''");
    else
      text.push_back(letter);
  return fmt::format("'{}'", text);
}

}  // namespace

std::vector<std::string> ssh_command(const RankBinding& rank, const std::string& folder,
                                     const std::vector<std::string>& command) {
  std::string remote = fmt::format("exec sh -c {} sh {}", quoted(kScript), quoted(folder));
  if (!rank.processors.empty()) remote += fmt::format(" taskset -c {}", fmt::join(rank.processors, ","));
  for (const std::string& word : command) remote += fmt::format(" {}", quoted(word));
  return {"ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-T", rank.host, remote};
}

std::string remote_input(const std::vector<std::string>& variables) {
  return fmt::format("{}\n\n", fmt::join(variables, "\n"));
}

}  // namespace motley
