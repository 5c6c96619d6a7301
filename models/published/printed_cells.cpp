#include "models/published/printed_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <regex>

#include "models/base/units.hpp"

namespace motley {

void pass_over(std::string reason) { throw UnknownRun{std::move(reason)}; }

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string bare_name(const std::string& text) {
  std::string kept;
  for (const char c : lower(text))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) kept += c;
  return kept;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

double PrintedCells::number(const char* column) const {
  double value = 0;
  if (read_number(text(column), value) != NumberFault::none)
    throw Refusal(Exit::usage, "bad-csv", where(column), fmt::format("`{}` is no number", text(column)),
                  "a plain number, or nothing");
  return value;
}

std::int64_t PrintedCells::count_or(const char* column, std::int64_t otherwise) const {
  if (text(column).empty()) return otherwise;
  const double value = number(column);
  if (value != std::floor(value) || value < 0)
    throw Refusal(Exit::usage, "bad-csv", where(column), fmt::format("`{}` is no count", text(column)),
                  "a whole number, or nothing");
  return static_cast<std::int64_t>(value);
}

std::int64_t PrintedCells::count(const char* column) const {
  if (text(column).empty()) pass_over(fmt::format("`{}` is not printed", column));
  return count_or(column, 0);
}

std::int64_t PrintedCells::noted(const char* name, std::int64_t otherwise) const {
  std::smatch match;
  return std::regex_search(text("notes"), match, std::regex(fmt::format("\\b{}=([0-9]+)", name)))
             ? std::stoll(match[1])
             : otherwise;
}

}  // namespace motley
