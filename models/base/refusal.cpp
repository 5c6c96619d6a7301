#include "models/base/refusal.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
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

// Levenshtein distance, computed row by row.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

Refusal::Refusal(Exit exit_code, std::string kind, Location where, std::string message, std::string hint)
    : std::runtime_error(compose(where, message, hint)),
      exit_code_(exit_code),
      kind_(std::move(kind)),
      where_(std::move(where)),
      message_(std::move(message)),
      hint_(std::move(hint)) {}

Refusal located(const Refusal& refusal, const Location& where) {
  if (!refusal.where().file.empty()) return refusal;
  return Refusal(refusal.exit_code(), refusal.kind(), where, refusal.message(), refusal.hint());
}

std::string suggest(std::string_view written, const std::vector<std::string>& known) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(written, a) < edit_distance(written, b);
  });
  if (nearest != known.end() &&
      edit_distance(written, *nearest) * 3 <= std::max(written.size(), nearest->size()))
    return fmt::format("did you mean `{}`?", *nearest);
  return fmt::format("known: {}", fmt::join(known, ", "));
}

void break_promise(std::string_view what, const char* file, int line) {
  throw std::logic_error(fmt::format("{}:{}: broken promise: {}", file, line, what));
}

}  // namespace motley
