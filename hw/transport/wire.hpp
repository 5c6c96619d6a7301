// How values look on a wire: little-endian, without padding, the same on every machine. A reader never reads beyond its
// bytes: it remembers that it was asked to. Read next: hw/transport/frame.hpp.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace motley {

class WireWriter {
 public:
  WireWriter() { bytes_.reserve(kUsual); }

  template <std::unsigned_integral T>
  void add(T value) {
    std::array<std::byte, sizeof(T)> bytes;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      bytes[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xffU);
    add(std::span<const std::byte>(bytes));
  }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  void add(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // A text of at most 65,535 bytes, behind its length; what is longer is cut.
  void add(std::string_view text) {
    const std::string_view kept = text.substr(0, 0xffff);
    add(static_cast<std::uint16_t>(kept.size()));
    add(std::as_bytes(std::span(kept)));
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  static constexpr std::size_t kUsual = 256;  // as much as most have, so that memory is taken once
  std::vector<std::byte> bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <std::unsigned_integral T>
  T number() {
    std::uint64_t value = 0;
    const std::span<const std::byte> bytes = next(sizeof(T));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    return static_cast<T>(value);
  }
  double real() { return std::bit_cast<double>(number<std::uint64_t>()); }
  std::string text() {
    const std::span<const std::byte> bytes = next(number<std::uint16_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Empty, and good() is false from then on, if fewer are left.
  std::span<const std::byte> next(std::size_t count) {
    if (count > left_.size()) {
      good_ = false;
      left_ = {};
      return {};
    }
    const std::span<const std::byte> bytes = left_.first(count);
    left_ = left_.subspan(count);
    return bytes;
  }
  bool good() const { return good_; }
  bool at_end() const { return good_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool good_ = true;
};

}  // namespace motley
