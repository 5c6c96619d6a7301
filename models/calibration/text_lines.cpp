#include "models/calibration/text_lines.hpp"

#include <fmt/format.h>

#include <charconv>

namespace motley {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().remove_suffix(1);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kSpaces = " \t";
  std::vector<std::string_view> words;
  for (auto begin = line.find_first_not_of(kSpaces); begin != std::string_view::npos;
       begin = line.find_first_not_of(kSpaces, begin)) {
    const auto end = std::min(line.find_first_of(kSpaces, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

double to_measured(std::string_view word, double most, const Location& where) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_number = error == std::errc() && end == word.data() + word.size();
  if (is_number && value >= 0 && value <= most) return value;
  throw Refusal(Exit::usage, "bad-measurements", where,
                fmt::format("`{}` is no number from 0 to {}", word.substr(0, 40), most),
                "the file holds what the program printed, unchanged");
}

}  // namespace motley
