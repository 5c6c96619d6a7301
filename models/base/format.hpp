// Number formats: those that tensors are kept in, and narrower ones that matmuls take their operands in.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace motley {

enum class Format : std::uint8_t {
  fp32,
  tf32,
  bf16,
  fp16,
  fp8,    // E4M3 and E5M2 with a scale a tensor or block of it (arXiv:2209.05433)
  mxfp8,  // the same with a power of two for each 32 elements (OCP Microscaling Formats 1.0, 2023-09)
  nvfp4   // E2M1 with an FP8 scale for each 16 elements (NVIDIA, 2025)
};
inline constexpr std::array kFormats = {Format::fp32, Format::tf32,  Format::bf16, Format::fp16,
                                        Format::fp8,  Format::mxfp8, Format::nvfp4};
// Operands of matmuls only; no tensor of a Program is kept in one.
constexpr bool is_narrow(Format format) { return format >= Format::fp8; }

std::int64_t bytes_of(Format format);  // an element as kept: tf32 in 4 bytes; narrow ones in a whole byte
std::string_view name_of(Format format);
std::optional<Format> parse_format(std::string_view text);

}  // namespace motley
