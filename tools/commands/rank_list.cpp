#include "tools/commands/rank_list.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Reads all of `text` as a rank; none: it is not the number of one.
std::optional<Rank> parse_rank(std::string_view text, std::int32_t rank_count) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_rank =
      error == std::errc() && end == text.data() + text.size() && number >= 0 && number < rank_count;
  return is_rank ? std::optional(Rank(number)) : std::nullopt;
}

}  // namespace

std::vector<Rank> parse_ranks(const std::string& text, std::int32_t rank_count) {
  std::set<Rank> ranks;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t dash = part.find('-');
    const auto first = parse_rank(part.substr(0, dash), rank_count);
    const auto last = dash == std::string_view::npos ? first : parse_rank(part.substr(dash + 1), rank_count);
    if (!first || !last || *last < *first)
      throw Refusal(Exit::usage, "bad-rank-list", {},
                    fmt::format("`{}` in the rank list `{}` is no rank or range of ranks", part, text),
                    fmt::format("ranks go from 0 to {}; a list is 0,3 or 0-3,7", rank_count - 1));
    for (Rank rank = *first; rank <= *last; ++rank) ranks.insert(rank);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return {ranks.begin(), ranks.end()};
}

}  // namespace motley
