// Number formats: those in which tensors are kept, and narrower ones in which matmuls take their operands.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/base/words.hpp"

namespace motley {

enum class Format : std::uint8_t {
  fp32,
  tf32,
  bf16,
  fp16,
  fp8,    // E4M3 and E5M2 with a scale for each tensor or block (arXiv:2209.05433)
  mxfp8,  // FP8 with a power of two for each 32 elements (OCP Microscaling Formats 1.0, 2023-09)
  nvfp4   // E2M1 with an FP8 scale for each 16 elements (NVIDIA, 2025)
};
template <>
inline constexpr auto kWords<Format> = words("fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4");
inline constexpr auto kFormats = every<Format>();
// Narrow formats are for operands of matmuls only, and for the copies of them that are kept for weight gradients.
constexpr bool is_narrow(Format format) { return format >= Format::fp8; }

std::int64_t bytes_of(Format format);  // bytes of an element in memory: 4 for tf32; no narrow format
// Bytes of that many elements, with the scales of mxfp8 and nvfp4, rounded up.
std::int64_t bytes_of(Format format, std::int64_t elements);
inline std::optional<Format> parse_format(std::string_view text) { return parse_word<Format>(text); }

}  // namespace motley
