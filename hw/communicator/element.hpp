// What the elements of a collective's payload are, and how two payloads are reduced to one. Payloads are bytes: they
// may begin at any address, and they have the byte order of this machine. Read next: hw/communicator/communicator.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "models/base/words.hpp"
#include "models/program/program.hpp"

namespace motley {

// fp64, fp32 and fp16 are the binary formats of IEEE 754. bf16 is the upper half of fp32. The two fp8 are those of the
// OCP 8-bit Floating Point Specification (OFP8) 1.0, 2023: E5M2 is the upper half of fp16; E4M3 has no infinity, and
// its largest value is 448.
enum class ElementType : std::uint8_t {
  fp64,
  fp32,
  fp16,
  bf16,
  fp8_e4m3,
  fp8_e5m2,
  int8,
  uint8,
  int32,
  int64
};
template <>
inline constexpr auto kWords<ElementType> = words("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2",
                                                  "int8", "uint8", "int32", "int64");
std::size_t element_bytes(ElementType type);

// Each element of `into` becomes the sum, the larger or the smaller of itself and the element of `from` at the same
// place. The two payloads have the same number of bytes, whole elements, and share no memory. The result depends on the
// two elements alone, bit for bit: not on their order, the length, the addresses or the instructions of the machine.
//  - Sums of integers wrap around.
//  - Sums of floating-point elements are the exact sum, rounded to the nearest; a tie goes to the even mantissa.
//    Elements of 16 and 8 bits are widened, added with 24 bits and rounded back. Subnormals are kept.
//  - A sum too large for its format becomes an infinity. In E4M3 it becomes NaN: the conversion is the non-saturating
//    one of OFP8.
//  - The maximum and the minimum are those of IEEE 754-2019: -0 is smaller than +0, and if either is NaN, so is the
//    result.
//  - Every NaN that results is the same one, with a positive sign, quiet and without a payload: 0x7FC00000 in fp32,
//    0x7F in E4M3.
// Assumes: the thread rounds to nearest and does not flush subnormals to zero, which is how every thread begins.
void reduce_into(ElementType type, ReduceOp reduce, std::span<std::byte> into,
                 std::span<const std::byte> from);

}  // namespace motley
