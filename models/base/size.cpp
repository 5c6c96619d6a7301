#include "models/base/size.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

[[noreturn]] void refuse_size(std::string size) {
  throw Refusal(Exit::infeasible, "too-large", {}, fmt::format("a size of {} cannot be counted", size),
                "a smaller model, batch or sequence");
}

}  // namespace

std::int64_t size_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    MOTLEY_CHECK(factor >= 0);
    if (__builtin_mul_overflow(product, factor, &product) || product > kMostSize)
      refuse_size(fmt::format("{}", fmt::join(factors, " x ")));
  }
  return product;
}

std::int64_t size_sum(std::int64_t a, std::int64_t b) {
  MOTLEY_CHECK(a >= 0 && b >= 0);
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum) || sum > kMostSize) refuse_size(fmt::format("{} + {}", a, b));
  return sum;
}

}  // namespace motley
