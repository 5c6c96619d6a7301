// The forms of fields in YAML. text() prints a value so that read() reads it back equal; read() refuses, at the node,
// a value that does not have the form. Read next: models/base/fields.hpp.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/base/fields.hpp"
#include "models/base/index.hpp"
#include "models/base/units.hpp"
#include "models/base/words.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {

struct Integer {
  IntegerRange range = {};
  template <std::integral Whole>
  std::string text(Whole value) const {
    return std::to_string(value);
  }
  template <std::integral Whole>
  void read(const Yaml& node, Whole& value) const {
    value = static_cast<Whole>(to_integer(node, range));
  }
};

// An id, written as its index.
struct Index {
  IntegerRange range = {};
  template <class Tag>
  std::string text(Id<Tag> id) const {
    return std::to_string(id.value());
  }
  template <class Tag>
  void read(const Yaml& node, Id<Tag>& id) const {
    id = Id<Tag>(to_integer(node, range));
  }
};

struct Truth {
  std::string text(bool value) const { return value ? "true" : "false"; }
  void read(const Yaml& node, bool& value) const { value = to_bool(node); }
};

struct Number {
  double (*to_value)(const Yaml&);  // reads a number, and refuses one out of bounds
  std::string text(double value) const { return format_exact(value); }
  void read(const Yaml& node, double& value) const { value = to_value(node); }
};
template <Sign kSign>
double to_number_of(const Yaml& node) {
  return to_number(node, kSign);
}
inline constexpr Number kNotNegative{to_number_of<Sign::not_negative>},
    kAboveZero{to_number_of<Sign::positive>};

// A positive whole number of bytes.
struct Bytes {
  std::string text(std::int64_t value) const { return std::to_string(value) + " B"; }
  void read(const Yaml& node, std::int64_t& value) const { value = to_bytes(node); }
};

struct QuotedText {
  std::string text(const std::string& value) const { return quote(value); }
  void read(const Yaml& node, std::string& value) const { value = to_text(node); }
};

// A word of the enum's table.
template <Worded E>
struct Word {
  std::span<const E> choices = {};  // the words that may be written; empty: all
  std::string text(E value) const {
    const std::string_view name = name_of(value);
    return name == "null" ? quote(name) : std::string(name);  // YAML reads the unquoted word as null
  }
  void read(const Yaml& node, E& value) const {
    value = choices.empty() ? to_choice<E>(node) : to_choice<E>(node, choices);
  }
};

// A list of values: [1, 2].
template <typename Form>
struct Several {
  Form item = {};
  template <typename Item>
  std::string text(const std::vector<Item>& values) const {
    std::string list;
    for (const Item& value : values) list += (list.empty() ? "" : ", ") + item.text(value);
    return fmt::format("[{}]", list);
  }
  template <typename Item>
  void read(const Yaml& node, std::vector<Item>& values) const {
    values.clear();
    for (const Yaml& each : to_sequence(node)) item.read(each, values.emplace_back());
  }
};

// An optional value. text() needs a value, so the field must hide its standard value (an empty optional).
template <typename Form>
struct Maybe {
  Form form = {};
  template <typename Value>
  std::string text(const std::optional<Value>& value) const {
    return form.text(*value);
  }
  template <typename Value>
  void read(const Yaml& node, std::optional<Value>& value) const {
    form.read(node, value.emplace());
  }
};

// A struct as a map on one line: {optimizer: 1, activations: 0}.
template <typename List>
struct Map {
  std::string_view what;  // the map's name in refusals: "`offload`"
  List list = {};
  std::string text(const typename List::Struct& value) const {
    return fmt::format("{{{}}}", print_flow(list, value));
  }
  void read(const Yaml& node, typename List::Struct& value) const { read_map(list, node, what, value); }
};

template <typename List>
struct Part {
  std::string_view what;
  List list = {};
  std::string text(const typename List::Struct& value) const {
    return fmt::format("{{{}}}", print_flow(list, value));
  }
  void read(const Yaml& node, typename List::Struct& value) const { read_map(list, node, what, value); }
};

template <typename List, Layout kLayout>
struct Items {
  std::string_view what;
  List list = {};

  // The text behind the colon of a key that stands after `indent` spaces.
  std::string items_text(const std::vector<typename List::Struct>& values, int indent) const {
    if (values.empty()) return " []\n";
    const std::string bullet = std::string(static_cast<std::size_t>(indent) + 2, ' ') + "- ";
    std::string text = "\n";
    for (const auto& value : values)
      if constexpr (kLayout == Layout::line_an_item)
        text += bullet + "{" + print_flow(list, value) + "}\n";
      else
        text += bullet + print_lines(list, value, indent + 4).substr(bullet.size());
    return text;
  }
  void read(const Yaml& node, std::vector<typename List::Struct>& values) const {
    values.clear();
    for (const Yaml& each : to_sequence(node)) read_map(list, each, what, values.emplace_back());
  }
};

}  // namespace motley
