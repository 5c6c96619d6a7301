#include "hw/communicator/parts.hpp"

#include <algorithm>

#include "models/base/refusal.hpp"

namespace motley {

std::span<float> part(std::span<float> values, std::size_t i, std::size_t R) {
  const std::size_t size = (values.size() + R - 1) / R;
  const std::size_t first = std::min(values.size(), size * i);
  return values.subspan(first, std::min(size, values.size() - first));
}

std::size_t place_in(const Group& group, Rank rank) {
  const auto place = std::find(group.ranks.begin(), group.ranks.end(), rank);
  MOTLEY_CHECK(place != group.ranks.end());
  return static_cast<std::size_t>(place - group.ranks.begin());
}

std::vector<std::span<float>> parts_that_come(CollectiveKind kind, const Group& group, Rank rank,
                                              std::span<float> values) {
  if (kind == CollectiveKind::all_reduce) return {values};
  const std::span<float> own = part(values, place_in(group, rank), group.ranks.size());
  if (kind == CollectiveKind::reduce_scatter) return {own};
  const auto before = static_cast<std::size_t>(own.data() - values.data());
  return {values.first(before), values.subspan(before + own.size())};
}

}  // namespace motley
