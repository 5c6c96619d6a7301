#include "models/base/format.hpp"

namespace motley {

std::int64_t bytes_of(Format format) {
  if (is_narrow(format)) return 1;
  return format == Format::bf16 || format == Format::fp16 ? 2 : 4;
}

}  // namespace motley
