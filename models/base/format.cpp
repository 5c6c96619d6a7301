#include "models/base/format.hpp"

#include "models/base/refusal.hpp"
#include "models/base/size.hpp"

namespace motley {

std::int64_t bytes_of(Format format) {
  MOTLEY_CHECK(!is_narrow(format));
  return format == Format::bf16 || format == Format::fp16 ? 2 : 4;
}

std::int64_t bytes_of(Format format, std::int64_t elements) {
  switch (format) {
    case Format::fp8:
      return elements;
    case Format::mxfp8:
      return size_sum(elements, (elements + 31) / 32);
    case Format::nvfp4:
      return size_sum((elements + 1) / 2, (elements + 15) / 16);
    default:
      return size_product({bytes_of(format), elements});
  }
}

}  // namespace motley
