#include "models/format.hpp"

namespace motley {

std::int64_t bytes_of(Format format) {
  if (is_narrow(format)) return 1;
  return format == Format::bf16 || format == Format::fp16 ? 2 : 4;
}

std::string_view name_of(Format format) {
  static constexpr std::array<std::string_view, kFormats.size()> names = {"fp32", "tf32",  "bf16", "fp16",
                                                                          "fp8",  "mxfp8", "nvfp4"};
  return names[static_cast<std::size_t>(format)];
}

std::optional<Format> parse_format(std::string_view text) {
  for (Format format : kFormats)
    if (text == name_of(format)) return format;
  return std::nullopt;
}

}  // namespace motley
