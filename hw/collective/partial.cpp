#include "hw/collective/partial.hpp"

#include <algorithm>

#include "hw/collective/ring.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

bool is_among(const std::vector<Rank>& ranks, Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

std::vector<Rank> members_among(const Group& group, const std::vector<Rank>& ranks) {
  std::vector<Rank> members;
  for (const Rank member : group.ranks)
    if (is_among(ranks, member)) members.push_back(member);
  return members;
}

std::vector<Link> partial_links(const Program& program, const std::vector<Rank>& ranks) {
  std::vector<Link> links;
  for (const GroupId id : program.groups.ids()) {
    const Group& group = program.groups[id];
    const std::vector<Rank> members = members_among(group, ranks);
    if (members.size() == group.ranks.size()) continue;
    for (const Rank from : members)
      for (const Rank to : members)
        if (from != to) links.push_back({from, to, channel_of(group.kind), 0});
  }
  return links;
}

Posted run_among(const std::vector<Rank>& members, CollectiveKind kind, Transport& transport,
                 const Group& group, Channel channel, std::uint64_t tag, ReduceOp reduce,
                 std::span<float> values, Posted mine, const std::function<void(std::span<float>)>& fill) {
  Group here = group;
  here.ranks = members;
  if (kind == CollectiveKind::all_reduce)
    return ring_all_reduce(transport, here, channel, tag, reduce, values, mine);
  const std::size_t R = group.ranks.size(), H = members.size(), me = place_in(here, transport.rank());
  const auto part_of = [&](std::span<float> all, Rank rank) { return part(all, place_in(group, rank), R); };
  const bool sums = kind == CollectiveKind::reduce_scatter;
  const std::span<float> own = part_of(values, transport.rank());
  std::vector<float> outgoing(values.begin(), values.end()), arrived(sums ? own.size() : 0);
  Exchange exchange;
  exchange.channel = channel;
  exchange.tag = tag;
  for (std::size_t step = 1; step < H; ++step) {
    const Rank to = members[(me + step) % H], from = members[(me + H - step) % H];
    exchange.to = to;
    exchange.outgoing =
        std::as_bytes(part_of(outgoing, kind == CollectiveKind::all_gather ? transport.rank() : to));
    exchange.from = from;
    exchange.incoming = std::as_writable_bytes(sums ? std::span(arrived) : part_of(values, from));
    mine = transport.exchange(exchange, mine);
    if (sums) reduce_into(own, arrived, reduce);
  }
  for (const Rank member : group.ranks)
    if (!sums && !is_among(members, member)) fill(part_of(values, member));
  return mine;
}

}  // namespace motley
