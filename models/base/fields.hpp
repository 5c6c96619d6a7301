// The fields of a struct, listed once. This one list serves to print, read, hash and compare the struct key by key,
// and a member that it lacks fails to compile. Read next: models/transformer/train_fields.hpp.
//
// A list is a class with `Struct` and each(), which shows every field to a visitor:
//
//   struct OffloadFields {
//     using Struct = Offload;
//     constexpr void each(auto&& visit) const {
//       visit(field("optimizer", kShare, &Offload::optimizer));
//       visit(field("activations", kShare, &Offload::activations));
//     }
//   };
//   static_assert(lists_every_member<OffloadFields>());
//
// A form says how a value is written: text(value) prints it, and read(node, value) reads it and refuses other forms.
// The forms of YAML are in models/base/field_forms.hpp. A visitor that writes in another way (the words of a line)
// needs key and member alone: field("layer", Plain{}, &Kernel::layer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {

// A field without a form: the visitor decides by the type of the member.
struct Plain {};

// One key of a struct. Most keys have one member. Where the form takes the whole struct, `members` are those that the
// form prints and reads.
template <typename Form, typename Struct, typename... Values>
struct Field {
  std::string_view key;
  Form form;
  std::tuple<Values Struct::*...> members;
  std::string_view short_key = {};  // another name that may be written for the key; empty: none
  bool is_needed = false;           // reading refuses ("missing-key") a map without the key
  bool hides_standard = false;      // the field is not printed where its value is that of a fresh struct

  constexpr Field needed() const { return {key, form, members, short_key, true, hides_standard}; }
  constexpr Field or_short(std::string_view name) const {
    return {key, form, members, name, is_needed, hides_standard};
  }
  constexpr Field unless_standard() const { return {key, form, members, short_key, is_needed, true}; }

  std::string text(const Struct& value) const {
    if constexpr (requires { form.text(value); })
      return form.text(value);
    else
      return form.text(value.*std::get<0>(members));
  }
  void read(const Yaml& node, Struct& value) const {
    if constexpr (requires { form.read(node, value); })
      form.read(node, value);
    else
      form.read(node, value.*std::get<0>(members));
  }
};

template <typename Form, typename Struct, typename... Values>
constexpr Field<Form, Struct, Values...> field(std::string_view key, Form form, Values Struct::*... members) {
  return {key, std::move(form), {members...}};
}

// Some fields of a struct that share a key and stand in a map of their own: {p2p: true, gradients: false}.
template <typename List>
struct Part;

template <typename List>
constexpr Field<Part<List>, typename List::Struct> part(std::string_view key, Part<List> form) {
  return {key, std::move(form), {}};
}

// A list of structs in lines of their own: one line for each item, or one line for each key.
enum class Layout : std::uint8_t { line_an_item, line_a_key };
template <typename List, Layout kLayout>
struct Items;

namespace detail {
template <typename Form>
inline constexpr bool is_part = false;
template <typename List>
inline constexpr bool is_part<Part<List>> = true;
template <typename Form>
inline constexpr bool is_items = false;
template <typename List, Layout kLayout>
inline constexpr bool is_items<Items<List, kLayout>> = true;
}  // namespace detail

// Shows every member that the list names, as a pointer to it.
template <typename List, typename Visit>
constexpr void each_member(const List& list, Visit&& visit) {
  list.each([&](const auto& entry) {
    if constexpr (detail::is_part<decltype(entry.form)>)
      each_member(entry.form.list, visit);
    else
      std::apply([&](auto... member) { (visit(member), ...); }, entry.members);
  });
}

// Whether the values differ in a member of this field.
template <typename Struct, typename Entry>
bool differ(const Entry& entry, const Struct& a, const Struct& b) {
  bool result = false;
  const auto compare = [&](auto member) { result = result || !(a.*member == b.*member); };
  if constexpr (detail::is_part<decltype(entry.form)>)
    each_member(entry.form.list, compare);
  else
    std::apply([&](auto... member) { (compare(member), ...); }, entry.members);
  return result;
}

// Shows every field that is printed: all except those that hide their standard value and have it.
template <typename List, typename Visit>
void each_shown(const List& list, const typename List::Struct& value, Visit&& visit) {
  const typename List::Struct standard{};
  list.each([&](const auto& entry) {
    if (!entry.hides_standard || differ(entry, value, standard)) visit(entry);
  });
}

// The keys that a map of these fields may have.
template <typename List>
std::vector<std::string> keys_of(const List& list) {
  std::vector<std::string> keys;
  list.each([&](const auto& entry) {
    keys.emplace_back(entry.key);
    if (!entry.short_key.empty()) keys.emplace_back(entry.short_key);
  });
  return keys;
}

// Finds an entry by its name or its short name. nullptr: the map has neither. Refuses ("duplicate-key") a map with
// both.
const YamlEntry* find_entry(const Fields& map, std::string_view key, std::string_view short_key);

// Reads the fields that stand in the map; the other members keep their values.
template <typename List>
void read_fields(const List& list, const Fields& map, typename List::Struct& value) {
  list.each([&](const auto& entry) {
    const YamlEntry* const given = find_entry(map, entry.key, entry.short_key);
    const Yaml needed = entry.is_needed ? map.need(entry.key) : nullptr;
    if (given != nullptr || needed) entry.read(given != nullptr ? given->value : needed, value);
  });
}

// Reads a map that holds these fields and no other key. `what` names the map in refusals.
template <typename List>
void read_map(const List& list, const Yaml& node, std::string_view what, typename List::Struct& value) {
  read_fields(list, Fields(node, std::string(what), keys_of(list)), value);
}

// Prints "key: value, key: value".
template <typename List>
std::string print_flow(const List& list, const typename List::Struct& value) {
  std::string text;
  each_shown(list, value, [&](const auto& entry) {
    text += text.empty() ? "" : ", ";
    text.append(entry.key).append(": ").append(entry.text(value));
  });
  return text;
}

// Prints one line for each key, with `indent` spaces before it.
template <typename List>
std::string print_lines(const List& list, const typename List::Struct& value, int indent = 0) {
  std::string text;
  each_shown(list, value, [&](const auto& entry) {
    text.append(static_cast<std::size_t>(indent), ' ').append(entry.key).append(":");
    if constexpr (detail::is_items<decltype(entry.form)>)
      text += entry.form.items_text(value.*std::get<0>(entry.members), indent);
    else
      text.append(" ").append(entry.text(value)).append("\n");
  });
  return text;
}

namespace detail {

template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;

// A value that converts to any type. An std::optional is initialised with its value type.
struct Anything {
  template <typename T>
  requires(!is_optional<T>) operator T() const;
};
template <std::size_t>
using AnythingAt = Anything;

template <typename Struct, std::size_t... kPlace>
constexpr bool takes(std::index_sequence<kPlace...>) {
  return requires { Struct{AnythingAt<kPlace>{}...}; };
}

}  // namespace detail

// Number of members of an aggregate: the largest number of initial values that it accepts.
template <typename Struct, std::size_t kMost = 40>
consteval std::size_t member_count() {
  if constexpr (kMost == 0 || detail::takes<Struct>(std::make_index_sequence<kMost>{}))
    return kMost;
  else
    return member_count<Struct, kMost - 1>();
}

template <typename List>
consteval bool lists_every_member() {
  std::size_t listed = 0;
  each_member(List{}, [&](auto) { ++listed; });
  return listed == member_count<typename List::Struct>();
}

}  // namespace motley
