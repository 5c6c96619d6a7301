// How elements are reduced, compared with a reference that shares no conversion with it: a table of all magnitudes of a
// format, in double precision, in which the exact result's nearest is looked up.
#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

#include "hw/communicator/element.hpp"

using namespace motley;

namespace {

using Codes = std::vector<std::uint64_t>;  // each element's bits
using Bytes = std::vector<std::byte>;

constexpr auto kElementTypes = every<ElementType>();
constexpr auto kReduceOps = every<ReduceOp>();
static_assert(std::endian::native == std::endian::little, "packed() copies the low bytes of a code");

Bytes packed(ElementType type, const Codes& codes) {
  const std::size_t size = element_bytes(type);
  Bytes bytes(codes.size() * size);
  for (std::size_t i = 0; i < codes.size(); ++i) std::memcpy(bytes.data() + i * size, &codes[i], size);
  return bytes;
}

Codes unpacked(ElementType type, const Bytes& bytes) {
  const std::size_t size = element_bytes(type);
  Codes codes(bytes.size() / size);
  for (std::size_t i = 0; i < codes.size(); ++i) std::memcpy(&codes[i], bytes.data() + i * size, size);
  return codes;
}

Codes reduced(ElementType type, ReduceOp reduce, const Codes& left, const Codes& right) {
  Bytes into = packed(type, left);
  reduce_into(type, reduce, into, packed(type, right));
  return unpacked(type, into);
}

std::uint64_t reduced(ElementType type, ReduceOp reduce, std::uint64_t left, std::uint64_t right) {
  return reduced(type, reduce, Codes{left}, Codes{right})[0];
}

// ---- the formats, as their specifications describe them

struct FloatLayout {
  int exponent_bits, mantissa_bits;
  bool has_infinity;
  std::uint64_t nan;  // the NaN of every result

  std::uint64_t sign() const { return std::uint64_t{1} << (exponent_bits + mantissa_bits); }
  // The magnitude after the largest finite one: infinity or, in E4M3, NaN.
  std::uint64_t beyond() const {
    return has_infinity ? sign() - (std::uint64_t{1} << mantissa_bits) : sign() - 1;
  }
  bool is_nan(std::uint64_t code) const {
    const std::uint64_t magnitude = code & (sign() - 1);
    return has_infinity ? magnitude > beyond() : magnitude == beyond();
  }
};

bool is_integer(ElementType type) { return type >= ElementType::int8; }

FloatLayout layout_of(ElementType type) {
  switch (type) {
    case ElementType::fp64:
      return {11, 52, true, 0x7FF8000000000000};
    case ElementType::fp32:
      return {8, 23, true, 0x7FC00000};
    case ElementType::fp16:
      return {5, 10, true, 0x7E00};
    case ElementType::bf16:
      return {8, 7, true, 0x7FC0};
    case ElementType::fp8_e4m3:
      return {4, 3, false, 0x7F};
    case ElementType::fp8_e5m2:
      return {5, 2, true, 0x7E};
    default:
      throw std::logic_error("an integer has no exponent");
  }
}

// A format of at most 16 bits.
class ValueTable {
 public:
  explicit ValueTable(const FloatLayout& layout) : layout_(layout) {
    const int M = layout.mantissa_bits, bias = (1 << (layout.exponent_bits - 1)) - 1;
    for (std::uint64_t magnitude = 0; magnitude <= layout.beyond(); ++magnitude) {
      const auto exponent = static_cast<int>(magnitude >> M);
      const auto mantissa = static_cast<double>(magnitude & ((std::uint64_t{1} << M) - 1));
      values_.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias - M)
                                      : std::ldexp(std::ldexp(1.0, M) + mantissa, exponent - bias - M));
    }
  }

  double value_of(std::uint64_t code) const {
    if (layout_.is_nan(code)) return std::numeric_limits<double>::quiet_NaN();
    const std::uint64_t magnitude = code & (layout_.sign() - 1);
    const double value =
        magnitude == layout_.beyond() ? std::numeric_limits<double>::infinity() : values_[magnitude];
    return code == magnitude ? value : -value;
  }

  // The nearest code: the even one of two. What is as near to the next power of two as to the largest value, or nearer,
  // lies beyond.
  std::uint64_t code_of(double value) {
    if (std::isnan(value)) return layout_.nan;
    const double magnitude = std::abs(value);
    const auto above = std::lower_bound(values_.begin(), values_.end() - 1, magnitude);
    auto code = static_cast<std::uint64_t>(above - values_.begin());
    if (magnitude < *above) {
      const double to_above = *above - magnitude, to_below = magnitude - *(above - 1);
      if (to_below < to_above || (to_below == to_above && code % 2 == 1)) --code;
      ties_ += to_below == to_above ? 1 : 0;
    }
    if (layout_.is_nan(code)) return layout_.nan;
    return std::signbit(value) ? code | layout_.sign() : code;
  }
  int ties() const { return ties_; }

 private:
  FloatLayout layout_;
  std::vector<double> values_;  // by magnitude; the last is beyond the largest value
  int ties_ = 0;
};

// ---- the reference

template <typename Float>
std::uint64_t bits_of(Float value, std::uint64_t nan) {
  if (std::isnan(value)) return nan;
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

std::int64_t integer_of(ElementType type, std::uint64_t code) {
  switch (type) {
    case ElementType::int8:
      return static_cast<std::int8_t>(code);
    case ElementType::int32:
      return static_cast<std::int32_t>(code);
    default:
      return static_cast<std::int64_t>(code);
  }
}

class Reference {
 public:
  explicit Reference(ElementType type) : type_(type) {
    if (!is_integer(type)) layout_ = layout_of(type);
    if (!is_integer(type) && element_bytes(type) <= 2) table_.emplace(*layout_);
  }

  std::uint64_t operator()(ReduceOp reduce, std::uint64_t left, std::uint64_t right) {
    if (reduce == ReduceOp::sum) return layout_ ? float_sum(left, right) : integer_sum(left, right);
    const bool largest = reduce == ReduceOp::maximum;
    if (!layout_) return (integer_of(type_, left) < integer_of(type_, right)) == largest ? right : left;
    if (layout_->is_nan(left) || layout_->is_nan(right)) return layout_->nan;
    const double a = value_of(left), b = value_of(right);
    if (a == b) return std::signbit(a) == largest ? right : left;
    return (a < b) == largest ? right : left;
  }
  int ties() const { return table_ ? table_->ties() : 0; }

 private:
  ElementType type_;
  std::optional<FloatLayout> layout_;
  std::optional<ValueTable> table_;

  double value_of(std::uint64_t code) const {
    if (table_) return table_->value_of(code);
    if (type_ == ElementType::fp32)
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(code)));
    return std::bit_cast<double>(code);
  }
  // To round a sum to 53 bits and then to at most 25 gives what to round it once gives (Figueroa 1995,
  // doi:10.1145/221332.221334), so double precision is exact enough. For fp64 it is the machine's own sum.
  std::uint64_t float_sum(std::uint64_t left, std::uint64_t right) {
    const double sum = value_of(left) + value_of(right);
    if (table_) return table_->code_of(sum);
    if (type_ == ElementType::fp32) return bits_of(static_cast<float>(sum), layout_->nan);
    return bits_of(sum, layout_->nan);
  }
  std::uint64_t integer_sum(std::uint64_t left, std::uint64_t right) const {
    const std::size_t bits = 8 * element_bytes(type_);
    return (left + right) & (~std::uint64_t{0} >> (64 - bits));
  }
};

// ---- pairs of elements

// Zeros, the ends of subnormals and of normals, infinities and NaNs, of both signs; of integers the ends of the range.
Codes special_codes(ElementType type) {
  const std::uint64_t sign = std::uint64_t{1} << (8 * element_bytes(type) - 1);
  Codes codes = {0, 1, sign - 1};
  if (!is_integer(type)) {
    const FloatLayout layout = layout_of(type);
    const std::uint64_t normal = std::uint64_t{1} << layout.mantissa_bits;
    for (const std::uint64_t code : {normal - 1, normal, layout.beyond() - 1, layout.beyond(), layout.nan})
      codes.push_back(code);
  }
  for (std::size_t i = codes.size(); i-- > 0;) codes.push_back(codes[i] | sign);
  return codes;
}

struct ElementPairs {
  Codes left, right;
};

// All pairs of elements of 8 bits. Of others 100,000: some special, some of about the same exponent, so that many sums
// are ties, and the rest of any bits.
ElementPairs element_pairs(ElementType type) {
  ElementPairs pairs;
  if (element_bytes(type) == 1) {
    for (std::uint64_t pair = 0; pair < 65'536; ++pair) {
      pairs.left.push_back(pair >> 8);
      pairs.right.push_back(pair & 0xFF);
    }
    return pairs;
  }
  std::mt19937_64 engine(20'261'126);
  const Codes special = special_codes(type);
  const std::uint64_t all = ~std::uint64_t{0} >> (64 - 8 * element_bytes(type));
  const auto drawn = [&] { return engine() % 4 == 0 ? special[engine() % special.size()] : engine() & all; };
  for (int i = 0; i < 100'000; ++i) {
    pairs.left.push_back(drawn());
    if (is_integer(type) || engine() % 2 == 0) {
      pairs.right.push_back(drawn());
    } else {
      const int M = layout_of(type).mantissa_bits;
      const std::uint64_t kept = all >> M << M, exponents = engine() % 5 << M;
      pairs.right.push_back((((pairs.left.back() & kept) + exponents) ^ (engine() & ~kept)) & all);
    }
  }
  return pairs;
}

}  // namespace

TEST_CASE("the elements of a payload have words and sizes") {
  const std::array<std::size_t, kElementTypes.size()> bytes = {8, 4, 2, 2, 1, 1, 1, 1, 4, 8};
  for (const ElementType type : kElementTypes) {
    CHECK(parse_word<ElementType>(name_of(type)) == type);
    CHECK(element_bytes(type) == bytes[static_cast<std::size_t>(type)]);
  }
  CHECK(name_of(ElementType::fp8_e4m3) == "fp8_e4m3");
}

TEST_CASE("elements are reduced to the bits of the exact result, rounded once") {
  for (const ElementType type : kElementTypes) {
    const ElementPairs pairs = element_pairs(type);
    Reference reference(type);
    for (const ReduceOp reduce : kReduceOps) {
      const Codes results = reduced(type, reduce, pairs.left, pairs.right);
      int wrong = 0;
      for (std::size_t i = 0; i < results.size(); ++i) {
        const std::uint64_t expected = reference(reduce, pairs.left[i], pairs.right[i]);
        if (results[i] == expected || ++wrong > 5) continue;
        UNSCOPED_INFO(std::hex << pairs.left[i] << ", " << pairs.right[i] << ": " << results[i] << ", not "
                               << expected);
      }
      INFO(name_of(reduce) << " of " << name_of(type));
      CHECK(wrong == 0);
    }
    INFO(name_of(type));
    if (!is_integer(type) && element_bytes(type) <= 2) CHECK(reference.ties() > 1000);
  }
}

TEST_CASE("sums at the ends of a format are those of its specification") {
  struct Example {
    ElementType type;
    std::uint64_t left, right, sum;
  };
  const Example example = GENERATE(values<Example>({
      {ElementType::fp16, 0x7BFF, 0x4BFF, 0x7BFF},              // 65504 + 15.99 stays the largest
      {ElementType::fp16, 0x7BFF, 0x4C00, 0x7C00},              // 65504 + 16 is a tie: infinity
      {ElementType::fp16, 0xFBFF, 0xFBFF, 0xFC00},              // -65504 twice: -infinity
      {ElementType::fp16, 0x0001, 0x03FF, 0x0400},              // subnormals whose sum is the smallest normal
      {ElementType::fp16, 0x3C00, 0x1000, 0x3C00},              // 1 + 2^-11 is a tie: 1
      {ElementType::fp16, 0x3C01, 0x1000, 0x3C02},              // 1 + 2^-10 + 2^-11 is a tie: 1 + 2^-9
      {ElementType::fp16, 0x7C00, 0xFC00, 0x7E00},              // infinity - infinity
      {ElementType::fp16, 0x8000, 0x8000, 0x8000},              // -0 - 0
      {ElementType::fp16, 0x3C00, 0xBC00, 0x0000},              // 1 - 1
      {ElementType::bf16, 0x7F7F, 0x7F7F, 0x7F80},              // the largest twice: infinity
      {ElementType::bf16, 0x3F80, 0x3B80, 0x3F80},              // 1 + 2^-8 is a tie: 1
      {ElementType::bf16, 0x3F81, 0x3B80, 0x3F82},              // 1 + 2^-7 + 2^-8 is a tie: 1 + 2^-6
      {ElementType::bf16, 0x0001, 0x0001, 0x0002},              // 2^-133 twice
      {ElementType::bf16, 0xFFFF, 0x0000, 0x7FC0},              // a NaN loses its sign and its payload
      {ElementType::fp8_e4m3, 0x7E, 0x58, 0x7E},                // 448 + 16 is a tie: 448
      {ElementType::fp8_e4m3, 0x7E, 0x59, 0x7F},                // 448 + 18 is nearer to 480: NaN
      {ElementType::fp8_e4m3, 0xFE, 0xFE, 0x7F},                // -448 twice: NaN
      {ElementType::fp8_e4m3, 0x01, 0x07, 0x08},                // 2^-9 + 7 * 2^-9
      {ElementType::fp8_e5m2, 0x7B, 0x6B, 0x7B},                // 57344 + 3584 stays the largest
      {ElementType::fp8_e5m2, 0x7B, 0x6C, 0x7C},                // 57344 + 4096 is a tie: infinity
      {ElementType::fp32, 0x00000001, 0x80000003, 0x80000002},  // 2^-149 - 3 * 2^-149
      {ElementType::fp32, 0xFFFFFFFF, 0x7F800001, 0x7FC00000},
      {ElementType::fp64, 0xFFF0000000000001, 0xFFFFFFFFFFFFFFFF, 0x7FF8000000000000},
      {ElementType::int8, 0x7F, 0x01, 0x80},
      {ElementType::uint8, 0xFF, 0x02, 0x01},
      {ElementType::int32, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFF},
      {ElementType::int64, 0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFE},
  }));
  INFO(name_of(example.type) << std::hex << ": " << example.left << " + " << example.right);
  CHECK(reduced(example.type, ReduceOp::sum, example.left, example.right) == example.sum);
}

TEST_CASE("the two elements of a reduction may change places") {
  for (const ElementType type : kElementTypes)
    for (const ReduceOp reduce : kReduceOps) {
      const ElementPairs pairs = element_pairs(type);
      INFO(name_of(reduce) << " of " << name_of(type));
      CHECK(
          (reduced(type, reduce, pairs.left, pairs.right) == reduced(type, reduce, pairs.right, pairs.left)));
    }
}

TEST_CASE("an element is reduced to the same bits at every address, alone and among others") {
  constexpr std::size_t kMost = 131, kAround = 8;
  constexpr std::byte kUntouched{0xA5};
  const ElementType type = GENERATE(from_range(kElementTypes.begin(), kElementTypes.end()));
  const std::size_t size = element_bytes(type);
  const ElementPairs pairs = element_pairs(type);
  std::mt19937 engine(7);
  Codes left, right;
  for (std::size_t i = 0; i < kMost; ++i) {
    const std::size_t drawn = engine() % pairs.left.size();
    left.push_back(pairs.left[drawn]);
    right.push_back(pairs.right[drawn]);
  }
  for (const ReduceOp reduce : kReduceOps) {
    Codes alone;
    for (std::size_t i = 0; i < kMost; ++i) alone.push_back(reduced(type, reduce, left[i], right[i]));
    const Bytes mine = packed(type, left), theirs = packed(type, right), expected = packed(type, alone);
    for (const std::size_t count : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 67, 131})
      for (std::size_t offsets = 0; offsets < 64; ++offsets) {
        const std::size_t to = kAround + offsets / 8, from = offsets % 8, bytes = count * size;
        Bytes into(to + bytes + kAround, kUntouched), others(from + bytes, kUntouched);
        std::copy_n(mine.begin(), bytes, into.data() + to);
        std::copy_n(theirs.begin(), bytes, others.data() + from);
        Bytes whole = into;
        std::copy_n(expected.begin(), bytes, whole.data() + to);
        const Bytes unread = others;
        reduce_into(type, reduce, std::span(into).subspan(to, bytes), std::span(others).subspan(from, bytes));
        if (into == whole && others == unread) continue;
        FAIL(name_of(reduce) << " of " << count << " " << name_of(type) << " at " << to << " and " << from);
      }
  }
  SUCCEED();
}

TEST_CASE("a payload without elements is left as it is, and payloads of unlike sizes are a mistake") {
  for (const ElementType type : kElementTypes)
    for (const ReduceOp reduce : kReduceOps) {
      CHECK_NOTHROW(reduce_into(type, reduce, {}, {}));
      Bytes two(2 * element_bytes(type)), one(element_bytes(type));
      CHECK_THROWS_AS(reduce_into(type, reduce, two, one), std::logic_error);
    }
  Bytes odd(7);
  const Bytes other(7);
  CHECK_THROWS_AS(reduce_into(ElementType::fp16, ReduceOp::sum, odd, other), std::logic_error);
}
