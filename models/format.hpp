// Number formats of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace motley {

enum class Format : std::uint8_t { fp32, tf32, bf16, fp16 };

std::int64_t bytes_of(Format format);  // tf32 is stored in 4 bytes
std::string_view name_of(Format format);
std::optional<Format> parse_format(std::string_view text);

}  // namespace motley
