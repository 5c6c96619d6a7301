// Collectives with what they must end with, by the definition of their kinds alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "hw/communicator/communicator.hpp"
#include "models/base/index.hpp"

namespace motley::tests {

using Bytes = std::vector<std::byte>;

inline std::vector<Rank> everyone(int ranks) {
  std::vector<Rank> members;
  for (int rank = 0; rank < ranks; ++rank) members.emplace_back(rank);
  return members;
}

// Small whole numbers, which every format adds exactly.
inline Bytes small_numbers(ElementType element, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count * element_bytes(element));
  for (std::size_t i = 0; i < count; ++i) {
    const int value = static_cast<int>(random() % 3);
    const auto put = [&](auto number) {
      std::memcpy(bytes.data() + i * sizeof number, &number, sizeof number);
    };
    switch (element) {
      case ElementType::fp64:
        put(static_cast<double>(value));
        break;
      case ElementType::fp32:
        put(static_cast<float>(value));
        break;
      case ElementType::fp16:
        put(std::array<std::uint16_t, 3>{0, 0x3c00, 0x4000}[at(value)]);
        break;
      case ElementType::bf16:
        put(std::array<std::uint16_t, 3>{0, 0x3f80, 0x4000}[at(value)]);
        break;
      case ElementType::fp8_e4m3:
        put(std::array<std::uint8_t, 3>{0, 0x38, 0x40}[at(value)]);
        break;
      case ElementType::fp8_e5m2:
        put(std::array<std::uint8_t, 3>{0, 0x3c, 0x40}[at(value)]);
        break;
      case ElementType::int8:
      case ElementType::uint8:
        put(static_cast<std::uint8_t>(value));
        break;
      case ElementType::int32:
        put(static_cast<std::int32_t>(value));
        break;
      case ElementType::int64:
        put(static_cast<std::int64_t>(value));
        break;
    }
  }
  return bytes;
}

struct CollectiveCase {
  CollectiveCall call;
  int ranks = 2, per_node = 1;
  std::size_t count = 0;  // elements
};

// What each member must end with, where it is defined: by the definition of the kind alone.
inline std::vector<Bytes> expected(const CollectiveCase& test, std::vector<Bytes> values) {
  const auto R = at(test.ranks);
  const std::size_t width = element_bytes(test.call.element);
  std::vector<Bytes> results = values;
  Bytes sum = values[0];
  for (std::size_t i = 1; i < R; ++i) reduce_into(test.call.element, test.call.reduce, sum, values[i]);
  const std::size_t root = at(test.call.root);
  for (std::size_t i = 0; i < R; ++i)
    for (std::size_t j = 0; j < R; ++j) {
      const auto part = [&](Bytes& bytes, std::size_t number) { return part_of(bytes, width, number, R); };
      const auto give = [&](std::span<const std::byte> from) {
        std::copy(from.begin(), from.end(), part(results[i], j).begin());
      };
      switch (test.call.kind) {
        case CollectiveKind::all_gather:
        case CollectiveKind::gather:
          give(part(values[j], j));
          break;
        case CollectiveKind::all_to_all:
          give(part(values[j], i));
          break;
        case CollectiveKind::broadcast:
        case CollectiveKind::scatter:
          give(part(values[root], j));
          break;
        case CollectiveKind::all_reduce:
        case CollectiveKind::reduce_scatter:
        case CollectiveKind::reduce:
          give(part(sum, j));
          break;
        case CollectiveKind::barrier:
          break;
      }
    }
  return results;
}

// The bytes of a member's result that are defined.
inline std::span<std::byte> defined(const CollectiveCase& test, Bytes& bytes, std::size_t member) {
  const CollectiveKind kind = test.call.kind;
  if ((kind == CollectiveKind::reduce || kind == CollectiveKind::gather) && member != at(test.call.root))
    return {};
  if (kind != CollectiveKind::reduce_scatter && kind != CollectiveKind::scatter) return bytes;
  return part_of(bytes, element_bytes(test.call.element), member, at(test.ranks));
}

// The algorithms that messages can perform.
inline std::vector<CollectiveAlgorithm> algorithms_of(const CollectiveCase& test) {
  std::vector<CollectiveAlgorithm> able;
  GroupShape shape;
  shape.rank_count = test.ranks;
  shape.per_node = test.per_node;
  for (const CollectiveAlgorithm each :
       {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree, CollectiveAlgorithm::double_binary_tree,
        CollectiveAlgorithm::recursive, CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::flat,
        CollectiveAlgorithm::dissemination})
    if (does(each, test.call.kind, shape)) able.push_back(each);
  return able;
}

inline constexpr std::array kKinds = {
    CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
    CollectiveKind::all_to_all, CollectiveKind::broadcast,      CollectiveKind::reduce,
    CollectiveKind::gather,     CollectiveKind::scatter,        CollectiveKind::barrier};

}  // namespace motley::tests
