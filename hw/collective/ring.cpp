#include "hw/collective/ring.hpp"

#include <algorithm>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

std::size_t part_size(std::size_t count, std::size_t R) { return (count + R - 1) / R; }

// The steps of one rank along its ring: each sends to the next member and receives from the previous one.
class Ring {
 public:
  Ring(Transport& transport, const Group& group, Channel channel, std::uint64_t tag, Posted mine)
      : transport_(transport), latest_(mine) {
    const std::size_t R = group.ranks.size(), me = place_in(group, transport.rank());
    exchange_.channel = channel;
    exchange_.tag = tag;
    exchange_.to = group.ranks[(me + 1) % R];
    exchange_.from = group.ranks[(me + R - 1) % R];
  }
  void step(std::span<const float> outgoing, std::span<float> incoming) {
    exchange_.outgoing = std::as_bytes(outgoing);
    exchange_.incoming = std::as_writable_bytes(incoming);
    latest_ = transport_.exchange(exchange_, latest_);
  }
  Posted latest() const { return latest_; }

 private:
  Transport& transport_;
  Exchange exchange_;
  Posted latest_;
};

}  // namespace

void reduce_into(std::span<float> into, std::span<const float> from, ReduceOp reduce) {
  for (std::size_t i = 0; i < into.size(); ++i)
    into[i] = reduce == ReduceOp::sum ? into[i] + from[i] : std::max(into[i], from[i]);
}

std::span<float> part(std::span<float> values, std::size_t i, std::size_t R) {
  const std::size_t size = part_size(values.size(), R);
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

Posted ring_reduce_scatter(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                           ReduceOp reduce, std::span<float> values, Posted mine) {
  const std::size_t R = group.ranks.size(), me = place_in(group, transport.rank());
  if (R == 1) return mine;
  Ring ring(transport, group, channel, tag, mine);
  std::vector<float> scratch(part_size(values.size(), R));
  for (std::size_t i = 0; i + 1 < R; ++i) {  // the last part to arrive is this rank's own
    const auto reduced = part(values, (me + 2 * R - i - 2) % R, R);
    const auto arrived = std::span(scratch).first(reduced.size());
    ring.step(part(values, (me + 2 * R - i - 1) % R, R), arrived);
    reduce_into(reduced, arrived, reduce);
  }
  return ring.latest();
}

Posted ring_all_gather(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                       std::span<float> values, Posted mine) {
  const std::size_t R = group.ranks.size(), me = place_in(group, transport.rank());
  if (R == 1) return mine;
  Ring ring(transport, group, channel, tag, mine);
  for (std::size_t i = 0; i + 1 < R; ++i)
    ring.step(part(values, (me + R - i) % R, R), part(values, (me + 2 * R - i - 1) % R, R));
  return ring.latest();
}

Posted ring_all_reduce(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                       ReduceOp reduce, std::span<float> values, Posted mine) {
  const Posted latest = ring_reduce_scatter(transport, group, channel, tag, reduce, values, mine);
  return ring_all_gather(transport, group, channel, tag, values, latest);
}

Posted pairwise_all_to_all(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                           std::span<float> values, Posted mine) {
  const std::size_t R = group.ranks.size(), me = place_in(group, transport.rank());
  MOTLEY_CHECK(values.size() % R == 0);
  std::vector<float> brought(values.begin(), values.end());
  Exchange exchange;
  exchange.channel = channel;
  exchange.tag = tag;
  exchange.keeps_zeros_back = true;  // tokens leave places of experts unused
  for (std::size_t step = 1; step < R; ++step) {
    const std::size_t to = (me + step) % R, from = (me + R - step) % R;
    exchange.to = group.ranks[to];
    exchange.outgoing = std::as_bytes(part(brought, to, R));
    exchange.from = group.ranks[from];
    exchange.incoming = std::as_writable_bytes(part(values, from, R));
    mine = transport.exchange(exchange, mine);
  }
  return mine;
}

Posted run_collective(CollectiveKind kind, Transport& transport, const Group& group, Channel channel,
                      std::uint64_t tag, ReduceOp reduce, std::span<float> values, Posted mine) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return ring_all_reduce(transport, group, channel, tag, reduce, values, mine);
    case CollectiveKind::reduce_scatter:
      return ring_reduce_scatter(transport, group, channel, tag, reduce, values, mine);
    case CollectiveKind::all_gather:
      return ring_all_gather(transport, group, channel, tag, values, mine);
    case CollectiveKind::all_to_all:
      return pairwise_all_to_all(transport, group, channel, tag, values, mine);
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::barrier:
      MOTLEY_CHECK(false);  // no real rank performs these
  }
  return mine;
}

}  // namespace motley
