// A strict reader of YAML (and so of JSON): every value knows its file, line and column, and what
// yaml-cpp lets pass (duplicate keys, octal-looking numbers, alias bombs) is refused. It is no
// general YAML library: no tags, no merge keys, one document. Read next: models/scenario/scenario.hpp.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/base/words.hpp"

namespace motley {

struct YamlNode;
using Yaml = std::shared_ptr<const YamlNode>;

struct YamlEntry {
  std::string key;
  Location where;  // of the key
  Yaml value;
};

struct YamlNode {
  enum class Kind : std::uint8_t { null, scalar, sequence, map };
  Kind kind = Kind::null;
  Location where;
  std::string text;                // scalar
  bool quoted = false;             // scalar: a string whatever it looks like
  std::vector<Yaml> items;         // sequence
  std::vector<YamlEntry> entries;  // map, in the order written
  std::int64_t size = 1;           // nodes in it, aliases followed
  int depth = 1;                   // levels in it, aliases followed

  bool is_map() const { return kind == Kind::map; }
  bool is_scalar() const { return kind == Kind::scalar; }
  const YamlEntry* find(std::string_view key) const;
};

// The whole text of a file. Throws Refusal file-not-found, file-too-large.
std::string read_text_file(const std::string& path, const Location& asked_from = {});

// Throws Refusal empty-file, not-utf8, yaml-syntax, duplicate-key, alias-bomb, cyclic-alias,
// too-deep. `file` stands in the locations.
Yaml parse_yaml(const std::string& text, const std::string& file);
Yaml read_yaml(const std::string& path, const Location& asked_from = {});

// What a map may hold. The constructor refuses a node that is no map and keys that are not in
// `known`; need() refuses a missing key. A key with a null value counts as missing.
class Fields {
 public:
  Fields(Yaml map, std::string what, std::vector<std::string> known);

  const YamlEntry* entry(std::string_view key) const;  // nullptr: not there or null
  bool stands(std::string_view key) const { return map_->find(key) != nullptr; }  // even if null
  Yaml find(std::string_view key) const;
  Yaml need(std::string_view key) const;
  const Location& where() const { return map_->where; }
  // Where the key stands; where the map begins when it does not hold the key.
  Location where(std::string_view key) const;

 private:
  Yaml map_;
  std::string what_;  // "a chip": for messages
};

struct IntegerRange {
  std::int64_t least = 0, most = std::numeric_limits<std::int64_t>::max();
};
inline constexpr IntegerRange kPositive{1};

enum class Sign : std::uint8_t { any, not_negative, positive };

// Each refuses, at the node, what is not of its type (wrong-type, octal-number, not-finite,
// number-out-of-range, missing-unit, unknown-unit) or not in its range (out-of-bounds).
std::int64_t to_integer(const Yaml& node, IntegerRange range);
double to_number(const Yaml& node, Sign sign);
double to_quantity(const Yaml& node, Dimension dimension, Sign sign);
std::int64_t to_bytes(const Yaml& node);  // a positive whole number of them
bool to_bool(const Yaml& node);
std::string to_text(const Yaml& node);
std::string to_choice(const Yaml& node, const std::vector<std::string>& choices);  // unknown-value
// One of these values, by its word; of all of the enum.
template <Worded E>
E to_choice(const Yaml& node, std::span<const E> choices) {
  std::vector<std::string> names;
  for (const E choice : choices) names.emplace_back(name_of(choice));
  return *parse_word<E>(to_choice(node, names));
}
template <Worded E>
E to_choice(const Yaml& node) {
  static constexpr auto kAll = every<E>();
  return to_choice<E>(node, kAll);
}
const std::vector<Yaml>& to_sequence(const Yaml& node);

// "`300`", "a list", "a map": what stands there, for messages.
std::string describe(const Yaml& node);

// At most 60 bytes of it, for messages.
std::string shortened(std::string_view text);

// A double-quoted scalar that reads back as `text`.
std::string quote(std::string_view text);

}  // namespace motley
