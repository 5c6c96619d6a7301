#include "hw/communicator/element.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// An element type here is a struct with the Code that lies in memory and functions of two codes: sum, maximum and
// minimum. They are written so that GCC makes vectors of the loop over them with what every x86-64 has, except for
// maximum and minimum of 8 bytes.

template <typename Integer>
struct IntegerElement {
  using Code = Integer;
  static Code sum(Code left, Code right) {
    using Unsigned = std::make_unsigned_t<Integer>;
    return static_cast<Code>(static_cast<Unsigned>(left) + static_cast<Unsigned>(right));
  }
  static Code maximum(Code left, Code right) { return std::max(left, right); }
  static Code minimum(Code left, Code right) { return std::min(left, right); }
};

// Compares numbers below 2^31 as signed ones, which vector instructions of every x86-64 can.
constexpr bool is_less(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b);
}

// `Coding` widens a code to the Value in which it is summed, exactly, and narrows a Value to the nearest code. It has
// the codes kNaN and kLast, which is the magnitude before the first NaN.
template <typename Coding>
struct FloatElement {
  using Code = typename Coding::Code;
  static Code sum(Code left, Code right) {
    return Coding::narrow(Coding::widen(left) + Coding::widen(right));
  }
  static Code maximum(Code left, Code right) {
    return unless_nan(left, right, ordered(static_cast<Code>(std::max(ordered(left), ordered(right)))));
  }
  static Code minimum(Code left, Code right) {
    return unless_nan(left, right, ordered(static_cast<Code>(std::min(ordered(left), ordered(right)))));
  }

 private:
  using Signed = std::make_signed_t<Code>;
  static constexpr auto kMagnitude = static_cast<Code>(std::numeric_limits<Signed>::max());

  // Turns codes, a sign and a magnitude, into integers of the same order, with -0 before +0, and back into codes.
  static Signed ordered(Code code) {
    const auto sign = static_cast<Signed>(code) >> std::numeric_limits<Signed>::digits;  // 0 or -1
    return static_cast<Signed>(static_cast<Signed>(code) ^ (sign & static_cast<Signed>(kMagnitude)));
  }
  static Code unless_nan(Code left, Code right, Signed result) {
    const auto last = static_cast<Signed>(Coding::kLast);
    const bool is_nan =
        (static_cast<Signed>(left & kMagnitude) > last) | (static_cast<Signed>(right & kMagnitude) > last);
    return is_nan ? Coding::kNaN : static_cast<Code>(result);
  }
};

template <typename Float, typename Unsigned>
struct WholeCoding {
  using Code = Unsigned;
  static constexpr auto kNaN = std::bit_cast<Code>(std::numeric_limits<Float>::quiet_NaN());
  static constexpr auto kLast = std::bit_cast<Code>(std::numeric_limits<Float>::infinity());
  static Float widen(Code code) { return std::bit_cast<Float>(code); }
  static Code narrow(Float value) { return value == value ? std::bit_cast<Code>(value) : kNaN; }
};

// A format of at most 16 bits. Its exponent and mantissa are put where those of fp32 lie, so that each value becomes
// itself times a power of two, the same for all values, and subnormals become subnormals. The sum has 24 bits, enough
// to round it twice (Figueroa 1995, doi:10.1145/221332.221334). `kHasInfinity`: the largest exponent is that of
// infinity and NaN, else only the largest magnitude is NaN.
template <typename Unsigned, int kExponentBits, int kMantissaBits, bool kHasInfinity>
struct NarrowCoding {
 private:
  static constexpr int kBits = 1 + kExponentBits + kMantissaBits, kShift = 23 - kMantissaBits;
  static constexpr std::uint32_t kMagnitude = (1U << (kBits - 1)) - 1;
  // The magnitude after the largest finite one.
  static constexpr std::uint32_t kBeyond = kHasInfinity ? kMagnitude - (1U << kMantissaBits) + 1 : kMagnitude;
  static constexpr std::uint32_t kWideMagnitude = 0x7FFFFFFF, kWideInfinity = 0x7F800000;

 public:
  using Code = Unsigned;
  static constexpr Code kNaN = kHasInfinity ? kBeyond | 1U << (kMantissaBits - 1) : kBeyond;
  static constexpr Code kLast = kHasInfinity ? kBeyond : kBeyond - 1;

  static float widen(Code code) {
    // Shifts of signed numbers copy the sign into the exponent; the mask keeps the first copy.
    const auto signs = static_cast<std::int32_t>(std::uint32_t{code} << (32 - kBits)) >> (8 - kExponentBits);
    const std::uint32_t finite = static_cast<std::uint32_t>(signs) & (~kWideMagnitude | kMagnitude << kShift);
    if constexpr (kExponentBits == 8)
      return std::bit_cast<float>(finite);  // infinity lies where that of fp32 does
    const bool is_finite = is_less(finite & kWideMagnitude, kBeyond << kShift);
    return std::bit_cast<float>(is_finite ? finite : finite | kWideInfinity);
  }

  static Code narrow(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & kWideMagnitude;
    const std::uint32_t odd = magnitude >> kShift & 1;
    const std::uint32_t nearest = (magnitude + (1U << (kShift - 1)) - 1 + odd) >> kShift;
    const std::uint32_t code = kExponentBits == 8 || is_less(nearest, kBeyond) ? nearest : kBeyond;
    const bool is_nan = is_less(kWideInfinity, magnitude) || (!kHasInfinity && is_less(kLast, code));
    return static_cast<Code>(is_nan ? kNaN : code | (bits & ~kWideMagnitude) >> (32 - kBits));
  }
};

// Copies elements in and out, because they may begin at any address; compilers make plain loads and stores of it.
template <typename Code, typename Reduced>
void reduce_each(std::span<std::byte> into, std::span<const std::byte> from, Reduced reduced) {
  std::byte* const results = into.data();
  const std::byte* const others = from.data();
  const std::size_t count = into.size() / sizeof(Code);
  for (std::size_t i = 0; i < count; ++i) {
    Code left, right;
    std::memcpy(&left, results + i * sizeof(Code), sizeof(Code));
    std::memcpy(&right, others + i * sizeof(Code), sizeof(Code));
    left = reduced(left, right);
    std::memcpy(results + i * sizeof(Code), &left, sizeof(Code));
  }
}

template <typename Element>
void reduce_elements(ReduceOp reduce, std::span<std::byte> into, std::span<const std::byte> from) {
  using Code = typename Element::Code;
  switch (reduce) {
    case ReduceOp::sum:
      return reduce_each<Code>(into, from, [](Code a, Code b) { return Element::sum(a, b); });
    case ReduceOp::maximum:
      return reduce_each<Code>(into, from, [](Code a, Code b) { return Element::maximum(a, b); });
    case ReduceOp::minimum:
      return reduce_each<Code>(into, from, [](Code a, Code b) { return Element::minimum(a, b); });
  }
}

}  // namespace

std::size_t element_bytes(ElementType type) {
  switch (type) {
    case ElementType::fp64:
    case ElementType::int64:
      return 8;
    case ElementType::fp32:
    case ElementType::int32:
      return 4;
    case ElementType::fp16:
    case ElementType::bf16:
      return 2;
    case ElementType::fp8_e4m3:
    case ElementType::fp8_e5m2:
    case ElementType::int8:
    case ElementType::uint8:
      return 1;
  }
  return 0;
}

void reduce_into(ElementType type, ReduceOp reduce, std::span<std::byte> into,
                 std::span<const std::byte> from) {
  MOTLEY_CHECK(into.size() == from.size() && into.size() % element_bytes(type) == 0);
  switch (type) {
    case ElementType::fp64:
      return reduce_elements<FloatElement<WholeCoding<double, std::uint64_t>>>(reduce, into, from);
    case ElementType::fp32:
      return reduce_elements<FloatElement<WholeCoding<float, std::uint32_t>>>(reduce, into, from);
    case ElementType::fp16:
      return reduce_elements<FloatElement<NarrowCoding<std::uint16_t, 5, 10, true>>>(reduce, into, from);
    case ElementType::bf16:
      return reduce_elements<FloatElement<NarrowCoding<std::uint16_t, 8, 7, true>>>(reduce, into, from);
    case ElementType::fp8_e4m3:
      return reduce_elements<FloatElement<NarrowCoding<std::uint8_t, 4, 3, false>>>(reduce, into, from);
    case ElementType::fp8_e5m2:
      return reduce_elements<FloatElement<NarrowCoding<std::uint8_t, 5, 2, true>>>(reduce, into, from);
    case ElementType::int8:
      return reduce_elements<IntegerElement<std::int8_t>>(reduce, into, from);
    case ElementType::uint8:
      return reduce_elements<IntegerElement<std::uint8_t>>(reduce, into, from);
    case ElementType::int32:
      return reduce_elements<IntegerElement<std::int32_t>>(reduce, into, from);
    case ElementType::int64:
      return reduce_elements<IntegerElement<std::int64_t>>(reduce, into, from);
  }
}

}  // namespace motley
