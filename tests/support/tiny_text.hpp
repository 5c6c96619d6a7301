// A text for tests: a few words again and again in an order that a seed decides, so that there is something to learn.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "hw/rank/data.hpp"

namespace motley::tests {

inline Text tiny_text() {
  constexpr std::array<const char*, 8> kWords = {"the ", "rank ",   "sends ",  "to ",
                                                 "a ",   "stage, ", "waits. ", "and "};
  std::string bytes;
  std::uint32_t state = 12345;
  while (bytes.size() < 20000) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator
    bytes += kWords[state >> 29U];
  }
  return Text(bytes);
}

}  // namespace motley::tests
