// Finds a key that may be written by its name or by its short name.
#include "models/base/fields.hpp"

#include <fmt/format.h>

namespace motley {

const YamlEntry* find_entry(const Fields& map, std::string_view key, std::string_view short_key) {
  const YamlEntry* const by_name = map.entry(key);
  const YamlEntry* const by_short_name = short_key.empty() ? nullptr : map.entry(short_key);
  if (by_name != nullptr && by_short_name != nullptr)
    throw Refusal(Exit::usage, "duplicate-key", by_short_name->where,
                  fmt::format("`{}` and `{}` are the same key", short_key, key), "keep one");
  return by_name != nullptr ? by_name : by_short_name;
}

}  // namespace motley
