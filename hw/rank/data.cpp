#include "hw/rank/data.hpp"

#include <fmt/format.h>

#include <utility>

#include "hw/rank/parameters.hpp"
#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace motley {

Text Text::load(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 32U;  // every rank holds all of it
  refuse_irregular_file(path);
  std::string bytes;
  if (is_text_source(path)) bytes = read_text_file(path, {}, kMostBytes);
  if (bytes.empty())
    throw Refusal(Exit::usage, "unreadable-text", {path, 0, 0}, "cannot read the training text",
                  "train: {text: FILE}, any file that is not empty");
  return Text(std::move(bytes));
}

void Text::suits(const Transformer& transformer, const Train& train) const {
  if (transformer.vocabulary < 256)
    throw Refusal(Exit::infeasible, "text-vocabulary", {},
                  fmt::format("a vocabulary of {} cannot name every byte", transformer.vocabulary),
                  "text is trained on byte by byte: a vocabulary of 256 or more");
  if (static_cast<std::int64_t>(bytes_.size()) <= train.sequence)
    throw Refusal(
        Exit::infeasible, "short-text", {},
        fmt::format("the training text has {} bytes, a sequence needs {}", bytes_.size(), train.sequence + 1),
        "a longer text, or a shorter `sequence`");
}

void Text::append(const Train& train, std::int64_t step, std::int64_t sequence, std::int64_t ahead,
                  std::vector<std::int32_t>& tokens) const {
  const std::uint64_t starts = bytes_.size() - static_cast<std::size_t>(train.sequence);
  const std::uint64_t first =
      random_bits(train.seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(sequence)) %
      starts;
  for (std::int64_t i = 0; i < train.sequence; ++i)
    tokens.push_back(
        static_cast<unsigned char>(bytes_[(first + static_cast<std::uint64_t>(i + ahead)) % bytes_.size()]));
}

std::uint64_t Text::hash() const { return XXH3_64bits(bytes_.data(), bytes_.size()); }

}  // namespace motley
