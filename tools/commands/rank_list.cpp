#include "tools/commands/rank_list.hpp"

#include <fmt/format.h>

#include <charconv>
#include <set>
#include <string_view>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Reads all of `text` as a rank; -1: it is not a number.
Rank parse_rank(std::string_view text) {
  Rank rank = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return error == std::errc() && end == text.data() + text.size() ? rank : -1;
}

}  // namespace

std::vector<Rank> parse_ranks(const std::string& text, Rank rank_count) {
  std::set<Rank> ranks;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t dash = part.find('-');
    const Rank first = parse_rank(part.substr(0, dash));
    const Rank last = dash == std::string_view::npos ? first : parse_rank(part.substr(dash + 1));
    if (first < 0 || last < first || last >= rank_count)
      throw Refusal(Exit::usage, "bad-rank-list", {},
                    fmt::format("`{}` in the rank list `{}` is no rank or range of ranks", part, text),
                    fmt::format("ranks go from 0 to {}; a list is 0,3 or 0-3,7", rank_count - 1));
    for (Rank rank = first; rank <= last; ++rank) ranks.insert(rank);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return {ranks.begin(), ranks.end()};
}

}  // namespace motley
