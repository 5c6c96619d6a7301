#include "tools/commands/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "models/base/units.hpp"

namespace motley {
namespace {

bool can_redraw() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
}

}  // namespace

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), visible_(can_redraw()), begin_(Clock::now()) {}

Progress::~Progress() { hide(); }

void Progress::hide() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Progress::show(std::int64_t done, const std::string& note) {
  if (!visible_) return;
  const Clock::time_point now = Clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  const double wall_s = std::chrono::duration<double>(now - begin_).count();
  const double left_s =
      done > 0 ? wall_s / static_cast<double>(done) * static_cast<double>(total_ - done) : 0;
  std::fputs(fmt::format("\r\033[K{} {}/{}{}{}{}", what_, done, total_, note.empty() ? "" : ", ", note,
                         done > 0 ? ", " + format_seconds(left_s) + " left" : "")
                 .c_str(),
             stderr);
}

}  // namespace motley
