#include "hw/collective/ring.hpp"

#include <algorithm>

#include "models/refusal.hpp"

namespace motley {
namespace {

// Chunk i of R over `values`: sizes differ by one at most, and are 0 when there are more ranks than values.
std::span<float> chunk(std::span<float> values, std::size_t i, std::size_t R) {
  const std::size_t first = values.size() * i / R, last = values.size() * (i + 1) / R;
  return values.subspan(first, last - first);
}

void reduce_into(std::span<float> into, std::span<const float> from, ReduceOp reduce) {
  for (std::size_t i = 0; i < into.size(); ++i)
    into[i] = reduce == ReduceOp::sum ? into[i] + from[i] : std::max(into[i], from[i]);
}

}  // namespace

Channel channel_of(GroupKind kind) {
  switch (kind) {
    case GroupKind::tensor:
      return Channel::tensor_group;
    case GroupKind::data:
      return Channel::data_group;
    case GroupKind::embedding:
      return Channel::embedding_group;
  }
  return Channel::tensor_group;
}

Posted ring_all_reduce(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                       ReduceOp reduce, std::span<float> values, Posted mine) {
  const std::size_t R = group.ranks.size();
  const auto place = std::find(group.ranks.begin(), group.ranks.end(), transport.rank());
  MOTLEY_CHECK(place != group.ranks.end());
  if (R == 1) return mine;
  const auto me = static_cast<std::size_t>(place - group.ranks.begin());
  std::vector<float> scratch(values.size() / R + 1);
  Exchange exchange;
  exchange.channel = channel;
  exchange.tag = tag;
  exchange.to = group.ranks[(me + 1) % R];
  exchange.from = group.ranks[(me + R - 1) % R];
  const auto step = [&](std::span<const float> outgoing, std::span<float> incoming) {
    exchange.outgoing = std::as_bytes(outgoing);
    exchange.incoming = std::as_writable_bytes(incoming);
    mine = transport.exchange(exchange, mine);
  };
  for (std::size_t i = 0; i + 1 < R; ++i) {  // reduce and scatter: I end with the whole of chunk me + 1
    const auto reduced = chunk(values, (me + 2 * R - i - 1) % R, R);
    const auto arrived = std::span(scratch).first(reduced.size());
    step(chunk(values, (me + R - i) % R, R), arrived);
    reduce_into(reduced, arrived, reduce);
  }
  for (std::size_t i = 0; i + 1 < R; ++i)  // gather
    step(chunk(values, (me + 1 + R - i) % R, R), chunk(values, (me + R - i) % R, R));
  return mine;
}

}  // namespace motley
