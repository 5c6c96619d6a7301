// How values go from a child process to its parent: through a pipe, field by field, as they lie in memory, so that
// every double arrives bit for bit. Both ends are the same program, so there are no versions and no text. write_value
// and read_value follow the same rules: a type that no rule covers is a compile error.
// Read next: sim/workers/pool.hpp.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "models/base/index.hpp"

namespace motley {

// The process at the other end has ended, perhaps in the middle of a message.
class BrokenMessage : public std::exception {
 public:
  const char* what() const noexcept override { return "the other process ended in the middle of a message"; }
};

// The end of a pipe that a child writes to. It gathers small pieces and writes large ones directly.
class MessageWriter {
 public:
  explicit MessageWriter(int descriptor) : descriptor_(descriptor) {}
  // Throws BrokenMessage when the reader has ended.
  void bytes(const void* data, std::size_t count);
  // Writes what was gathered. Call it at the end: the destructor does not.
  void flush();

 private:
  int descriptor_;
  std::string gathered_;
};

// The end of a pipe that the parent reads from. It waits for bytes that have not yet arrived.
class MessageReader {
 public:
  explicit MessageReader(int descriptor) : descriptor_(descriptor) {}
  // Throws BrokenMessage when the writer ended before it had written `count` bytes.
  void bytes(void* data, std::size_t count);
  // Whether the writer has ended and all that it wrote has been read.
  bool at_end();

 private:
  int descriptor_;
  std::string block_;      // the bytes that the last read() returned
  std::size_t taken_ = 0;  // how many bytes of block_ bytes() has returned already
};

// Whether a value is sent as one piece of memory. A struct without pointers may say so: template <> constexpr bool
// kSentAsBytes<T> = true. Any other struct has functions fields_of(T&) and fields_of(const T&) that return a std::tie
// of all its fields; written with a structured binding, they no longer compile once the struct has another field.
template <class T>
constexpr bool kSentAsBytes = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <class Tag>
inline constexpr bool kSentAsBytes<Id<Tag>> = true;

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
void write_value(MessageWriter& out, const T& value) {
  if constexpr (kSentAsBytes<T>) {
    static_assert(std::is_trivially_copyable_v<T>);
    out.bytes(&value, sizeof value);
  } else if constexpr (IsOptional<T>::value) {
    write_value(out, value.has_value());
    if (value) write_value(out, *value);
  } else if constexpr (std::is_same_v<T, std::string> || IsVector<T>::value) {
    write_value(out, value.size());
    if constexpr (kSentAsBytes<typename T::value_type>)
      out.bytes(value.data(), value.size() * sizeof(typename T::value_type));
    else
      for (const auto& item : value) write_value(out, item);
  } else {
    std::apply([&out](const auto&... fields) { (write_value(out, fields), ...); }, fields_of(value));
  }
}

// Reads into a value that its default constructor made.
template <class T>
void read_value(MessageReader& in, T& value) {
  if constexpr (kSentAsBytes<T>) {
    in.bytes(&value, sizeof value);
  } else if constexpr (IsOptional<T>::value) {
    bool has_value = false;
    read_value(in, has_value);
    if (has_value) read_value(in, value.emplace());
  } else if constexpr (std::is_same_v<T, std::string> || IsVector<T>::value) {
    std::size_t size = 0;
    read_value(in, size);
    value.resize(size);
    if constexpr (kSentAsBytes<typename T::value_type>)
      in.bytes(value.data(), size * sizeof(typename T::value_type));
    else
      for (auto& item : value) read_value(in, item);
  } else {
    std::apply([&in](auto&... fields) { (read_value(in, fields), ...); }, fields_of(value));
  }
}

}  // namespace motley
