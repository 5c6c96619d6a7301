// A strict reader of YAML (and so of JSON): every value knows its file, line and column, and the reader refuses
// mistakes that yaml-cpp accepts (duplicate keys, octal-looking numbers, alias bombs). It is no general YAML library:
// no tags, no merge keys, one document. Read next: models/scenario/scenario.hpp.
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
  Location where;  // location of the key
  Yaml value;
};

struct YamlNode {
  enum class Kind : std::uint8_t { null, scalar, sequence, map };
  Kind kind = Kind::null;
  Location where;
  std::string text;                // text of a scalar
  bool quoted = false;             // whether the scalar is quoted, and so a string whatever its text is
  std::vector<Yaml> items;         // items of a sequence
  std::vector<YamlEntry> entries;  // entries of a map, in the order written
  std::int64_t size = 1;           // number of nodes in this one, with aliases expanded
  int depth = 1;                   // number of levels in this node, with aliases expanded

  bool is_map() const { return kind == Kind::map; }
  bool is_scalar() const { return kind == Kind::scalar; }
  const YamlEntry* find(std::string_view key) const;
};

// Throws Refusal empty-file, not-utf8, yaml-syntax, duplicate-key, alias-bomb, cyclic-alias, too-deep. `file` is the
// name in locations.
Yaml parse_yaml(const std::string& text, const std::string& file);
Yaml read_yaml(const std::string& path, const Location& asked_from = {});

// A map with known keys. The constructor refuses a node that is no map and keys that are not in `known`; need()
// refuses a missing key. A key with a null value counts as missing. Where `on` is known it may also be written
// `where`, or `true`: YAML 1.1 reads the plain word `on` as true, and its writers (PyYAML) write that.
class Fields {
 public:
  Fields(Yaml map, std::string what, std::vector<std::string> known);

  const YamlEntry* entry(std::string_view key) const;  // nullptr: the key is missing or null
  bool stands(std::string_view key) const { return map_->find(key) != nullptr; }  // true for a null value too
  Yaml find(std::string_view key) const;
  Yaml need(std::string_view key) const;
  const Location& where() const { return map_->where; }
  // Location of the key; of the map where the key is missing.
  Location where(std::string_view key) const;

 private:
  Yaml map_;
  std::string what_;  // the map's name in messages: "a chip"
};

struct IntegerRange {
  std::int64_t least = 0, most = std::numeric_limits<std::int64_t>::max();
  bool operator==(const IntegerRange&) const = default;
};
inline constexpr IntegerRange kPositive{1};

enum class Sign : std::uint8_t { any, not_negative, positive };

// What a number may be, of what every plain number may be.
struct NumberBounds {
  Sign sign = Sign::any;
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  std::string_view hint = {};  // of the refusal of what `sign` allows and the bounds do not
  bool operator==(const NumberBounds&) const = default;
};

// Each of these readers refuses, at the node, a value of another type (wrong-type, octal-number, not-finite,
// number-out-of-range, missing-unit, unknown-unit) and a value outside its range (out-of-bounds).
std::int64_t to_integer(const Yaml& node, IntegerRange range);
double to_number(const Yaml& node, Sign sign);
double to_bounded_number(const Yaml& node, const NumberBounds& bounds,
                         RefusalSite site = RefusalSite::here());
double to_quantity(const Yaml& node, Dimension dimension, Sign sign);
std::int64_t to_bytes(const Yaml& node);  // a positive whole number of bytes
bool to_bool(const Yaml& node);
std::string to_text(const Yaml& node);
std::string to_choice(const Yaml& node, const std::vector<std::string>& choices);  // unknown-value
// The same for a name of which the file itself, or another one, says which there are.
std::string to_name(const Yaml& node, const std::vector<std::string>& names);
// Reads the word of one of these values, or of any value of the enum.
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

// Describes the node for messages: "`300`", "a list", "a map".
std::string describe(const Yaml& node);

// Returns at most 60 bytes of the text, for messages.
std::string shortened(std::string_view text);

// Returns a double-quoted scalar that reads back as `text`.
std::string quote(std::string_view text);

}  // namespace motley
