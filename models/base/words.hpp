// The words of an enum, in one table beside the enum. name_of() prints from the table, and readers of words
// (parse_word() here, to_choice() of models/base/yaml_reader.hpp) take their choices from it.
//
//   enum class Resharding : std::uint8_t { direct, gather };
//   template <>
//   inline constexpr auto kWords<Resharding> = words("direct", "gather");
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace motley {

// Words by value: the enumerators count from 0 without a gap. An empty table: the enum has no words.
template <typename E>
inline constexpr std::array<std::string_view, 0> kWords = {};

template <typename... Word>
constexpr std::array<std::string_view, sizeof...(Word)> words(Word... word) {
  return {word...};
}

template <typename E>
concept Worded = std::is_enum_v<E> && !kWords<E>.empty();

// Whether the enum has an enumerator of this value. For any other value GCC and Clang print a cast: "(E)4".
template <auto kValue>
consteval bool is_enumerator() {
  const std::string_view name = __PRETTY_FUNCTION__;
  return name[name.find("kValue = ") + 9] != '(';
}

// Each enumerator has a word, and no word is left over.
template <typename E>
consteval bool has_all_words() {
  for (const std::string_view word : kWords<E>)
    if (word.empty()) return false;
  return is_enumerator<static_cast<E>(kWords<E>.size() - 1)>() &&
         !is_enumerator<static_cast<E>(kWords<E>.size())>();
}

template <Worded E>
constexpr std::string_view name_of(E value) {
  static_assert(has_all_words<E>());
  return kWords<E>[static_cast<std::size_t>(value)];
}

// Finds the value of a word. Nothing: the enum has no such word.
template <Worded E>
constexpr std::optional<E> parse_word(std::string_view word) {
  static_assert(has_all_words<E>());
  for (std::size_t i = 0; i < kWords<E>.size(); ++i)
    if (kWords<E>[i] == word) return static_cast<E>(i);
  return std::nullopt;
}

// Every value of the enum, in the order of the table.
template <Worded E>
constexpr auto every() {
  std::array<E, kWords<E>.size()> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<E>(i);
  return values;
}

}  // namespace motley
