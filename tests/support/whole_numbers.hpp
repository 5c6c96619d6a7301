// Payloads of small whole numbers, which every element type holds and adds exactly among up to seven ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hw/communicator/element.hpp"

namespace motley::tests {

// The bytes of 0, 1 and 2 in such a format; of 0, 1 and 1 where sums of seven twos are not exact.
inline std::array<std::uint64_t, 3> small_values(ElementType element) {
  switch (element) {
    case ElementType::fp64:
      return {0, 0x3ff0000000000000U, 0x4000000000000000U};
    case ElementType::fp32:
      return {0, 0x3f800000U, 0x40000000U};
    case ElementType::fp16:
      return {0, 0x3c00U, 0x4000U};
    case ElementType::bf16:
      return {0, 0x3f80U, 0x4000U};
    case ElementType::fp8_e4m3:
      return {0, 0x38U, 0x40U};
    case ElementType::fp8_e5m2:
      return {0, 0x3cU, 0x3cU};
    default:
      return {0, 1, 2};
  }
}

inline std::vector<std::byte> whole_numbers(ElementType element, std::size_t count, std::uint64_t seed) {
  const std::size_t width = element_bytes(element);
  const std::array<std::uint64_t, 3> values = small_values(element);
  std::vector<std::byte> bytes(count * width);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::size_t i = 0; i < count; ++i) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    std::memcpy(bytes.data() + i * width, &values[state % 3], width);
  }
  return bytes;
}

}  // namespace motley::tests
