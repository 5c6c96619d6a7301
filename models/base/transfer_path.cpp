#include "models/base/transfer_path.hpp"

#include <algorithm>

namespace motley {

std::string print(PathSet paths) {
  std::string text;
  for (const TransferPath path : every<TransferPath>()) {
    if (!paths.contains(path)) continue;
    if (!text.empty()) text += ' ';
    text += name_of(path);
  }
  return text;
}

std::optional<PathSet> parse_paths(std::string_view text) {
  PathSet paths;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const auto path = parse_word<TransferPath>(text.substr(begin, end - begin));
    if (!path) return std::nullopt;
    paths.add(*path);
    begin = end + 1;
  }
  return paths;
}

}  // namespace motley
