// How bytes go from one rank to another, as a person names it. Read next: hw/transport/transport.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "models/base/words.hpp"

namespace motley {

// shm: out of the other process's memory, on one host. verbs: RDMA.
enum class TransferPath : std::uint8_t { tcp, shm, verbs };
template <>
inline constexpr auto kWords<TransferPath> = words("tcp", "shm", "verbs");

// The paths that some bytes have taken.
class PathSet {
 public:
  void add(TransferPath path) { bits_ |= bit(path); }
  void add(PathSet other) { bits_ |= other.bits_; }
  bool contains(TransferPath path) const { return (bits_ & bit(path)) != 0; }
  bool empty() const { return bits_ == 0; }
  bool operator==(const PathSet&) const = default;

 private:
  static std::uint8_t bit(TransferPath path) {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(path));
  }
  std::uint8_t bits_ = 0;
};

// "shm tcp". parse_paths() reads it; nothing: it is no such text.
std::string print(PathSet paths);
std::optional<PathSet> parse_paths(std::string_view text);

}  // namespace motley
