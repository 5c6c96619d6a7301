#include "models/format.hpp"

namespace motley {

std::int64_t bytes_of(Format format) { return format == Format::bf16 || format == Format::fp16 ? 2 : 4; }

std::string_view name_of(Format format) {
  switch (format) {
    case Format::fp32:
      return "fp32";
    case Format::tf32:
      return "tf32";
    case Format::bf16:
      return "bf16";
    case Format::fp16:
      return "fp16";
  }
  return "?";
}

std::optional<Format> parse_format(std::string_view text) {
  for (Format format : {Format::fp32, Format::tf32, Format::bf16, Format::fp16})
    if (text == name_of(format)) return format;
  return std::nullopt;
}

}  // namespace motley
