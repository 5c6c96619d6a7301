// Products and sums of sizes (elements, bytes, ranks, micro-batches) that never wrap around. What is read from a file
// is bounded where it is read; a product of several such numbers may still be more than an int64 holds.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace motley {

// The largest size that is counted: 64 PiB, where it is bytes. A hundred of these still add up to less than 2^63.
inline constexpr std::int64_t kMostSize = std::int64_t{1} << 56;

// Throw Refusal too-large if the result is above kMostSize. No argument may be negative.
std::int64_t size_product(std::initializer_list<std::int64_t> factors);
std::int64_t size_sum(std::int64_t a, std::int64_t b);

}  // namespace motley
