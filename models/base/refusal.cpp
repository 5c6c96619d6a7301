#include "models/base/refusal.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace motley {
namespace {

// Writes control characters as escapes, so that the text of a file cannot control the terminal that shows it.
std::string printable(const std::string& text) {
  std::string printed;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f)
      printed += fmt::format("\\x{:02x}", byte);
    else
      printed += c;
  }
  return printed;
}

std::string compose(const Location& where, const std::string& message, const std::string& hint) {
  std::string text;
  if (!where.file.empty()) {
    text = where.file + ":";
    if (where.line > 0) text += fmt::format("{}:{}:", where.line, where.column);
    text += " ";
  }
  text += message;
  if (!hint.empty()) text += "\n  hint: " + hint;
  return printable(text);
}

// The number of letters to insert, leave out, change or swap with their neighbour, row by row.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1), above, above_that;
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    above_that = std::exchange(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], above_that[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

Refusal::Refusal(Exit exit_code, std::string kind, Location where, std::string message, std::string hint,
                 RefusalSite site)
    : std::runtime_error(compose(where, message, hint)),
      exit_code_(exit_code),
      kind_(std::move(kind)),
      where_(std::move(where)),
      message_(std::move(message)),
      hint_(std::move(hint)),
      site_(site) {}

Refusal::Refusal(const Refusal& first, std::vector<Refusal> others) : Refusal(first) {
  if (!others.empty()) others_ = std::make_shared<const std::vector<Refusal>>(std::move(others));
}

const std::vector<Refusal>& Refusal::others() const {
  static const std::vector<Refusal> kNone;
  return others_ ? *others_ : kNone;
}

Refusal located(const Refusal& refusal, const Location& where) {
  if (!refusal.where().file.empty()) return refusal;
  return Refusal(refusal.exit_code(), refusal.kind(), where, refusal.message(), refusal.hint(),
                 refusal.site());
}

void note_sites(const Refusal& refusal) {
  const char* const path = std::getenv("MOTLEY_REFUSAL_SITES");
  if (path == nullptr) return;
  std::string lines;
  const auto add = [&lines](const Refusal& each) {
    if (each.site().line > 0)
      lines += fmt::format("{}:{} {}\n", each.site().file, each.site().line, each.kind());
  };
  add(refusal);
  for (const Refusal& other : refusal.others()) add(other);
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return;
  // One write, so that the lines of another process stand before or behind these.
  [[maybe_unused]] const ssize_t written = write(file, lines.data(), lines.size());
  close(file);
}

std::optional<std::string> nearest(std::string_view written, const std::vector<std::string>& known) {
  const auto near = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(written, a) < edit_distance(written, b);
  });
  if (near == known.end() || edit_distance(written, *near) * 3 > std::max(written.size(), near->size()))
    return std::nullopt;
  return *near;
}

std::string suggest(std::string_view written, const std::vector<std::string>& known) {
  if (const auto near = nearest(written, known)) return fmt::format("did you mean `{}`?", *near);
  return fmt::format("known: {}", fmt::join(known, ", "));
}

void break_promise(std::string_view what, const char* file, int line) {
  throw std::logic_error(fmt::format("{}:{}: broken promise: {}", file, line, what));
}

}  // namespace motley
