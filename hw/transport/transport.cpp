#include "hw/transport/transport.hpp"

#include <algorithm>
#include <cstring>

namespace motley {

std::size_t bytes_in(const Pieces& pieces) {
  std::size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

Pieces cut(const Pieces& pieces, std::size_t offset, std::size_t length) {
  Pieces parts;
  for (const auto& piece : pieces) {
    const std::size_t skipped = std::min(offset, piece.size());
    const std::size_t taken = std::min(length, piece.size() - skipped);
    if (taken > 0) parts.push_back(piece.subspan(skipped, taken));
    offset -= skipped;
    length -= taken;
  }
  return parts;
}

std::size_t bytes_before_zeros(std::span<const std::byte> bytes) {
  std::size_t end = bytes.size();
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  for (; end >= kWord; end -= kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + end - kWord, kWord);
    if (word != 0) break;
  }
  return end;
}

}  // namespace motley
