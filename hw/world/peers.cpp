#include "hw/world/peers.hpp"

#include <algorithm>
#include <utility>

#include "hw/communicator/parts.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Contexts of a run. Groups of several kinds may have the same number.
enum class Domain : std::uint8_t { groups = 1, present_groups, messages };
std::uint64_t context(Domain domain, std::uint64_t number) {
  return static_cast<std::uint64_t>(domain) << 56U | number;
}

std::span<std::byte> bytes_of(std::span<float> values) { return std::as_writable_bytes(values); }

CollectiveCall call_of(const GroupCall& call) {
  // Tokens leave places of experts unused.
  return {
      .kind = call.kind, .reduce = call.reduce, .keeps_zeros_back = call.kind == CollectiveKind::all_to_all};
}

MessageKey key_of(const StageMessage& message) {
  return {context(Domain::messages, at(message.lane) << 1U | (message.gradient ? 1U : 0U)), message.tag, 0};
}

Moved await(Messenger& messenger, const Request& request) {
  const Posted latest = messenger.wait(request);
  return {latest, messenger.paths_of(request)};
}

}  // namespace

std::vector<Rank> members_among(const Group& group, const std::vector<Rank>& ranks) {
  std::vector<Rank> members;
  for (const Rank member : group.ranks)
    if (std::find(ranks.begin(), ranks.end(), member) != ranks.end()) members.push_back(member);
  return members;
}

// ---- RealPeers

RealPeers::RealPeers(const Program& program, Messenger& messenger, GroupAlgorithms algorithms)
    : messenger_(messenger), algorithms_(std::move(algorithms)), used_memory_(messenger) {
  for (const GroupId id : program.groups.ids()) {
    const std::vector<Rank>& members = program.groups[id].ranks;
    const int per_node = algorithms_.per_node ? algorithms_.per_node(id) : 1;
    if (std::find(members.begin(), members.end(), messenger.rank()) != members.end())
      groups_.emplace(id,
                      Communicator(messenger, context(Domain::groups, at(id.value())), members, per_node));
  }
}

Moved RealPeers::send(Rank to, const StageMessage& message, std::span<const float> values, Posted mine) {
  SendOrder order;
  order.to = to;
  order.key = key_of(message);
  order.call.count = values.size_bytes();
  order.pieces = {std::as_bytes(values)};
  order.mine = mine;
  used_memory_.use(order.pieces[0]);
  return await(messenger_, messenger_.post(std::move(order)));
}

Moved RealPeers::receive(Rank from, const StageMessage& message, std::span<float> values, Posted mine) {
  ReceiveOrder order;
  order.from = from;
  order.key = key_of(message);
  order.call.count = values.size_bytes();
  order.into = bytes_of(values);
  order.mine = mine;
  used_memory_.use(order.into);
  return await(messenger_, messenger_.post(order));
}

Moved RealPeers::collect(GroupId group, const GroupCall& call, std::span<float> values, Posted mine) {
  CollectiveCall asked = call_of(call);
  if (algorithms_.choose && call.bytes > 0) asked.algorithm = algorithms_.choose(group, call);
  used_memory_.use(bytes_of(values));
  return await(messenger_, groups_.at(group).start(asked, bytes_of(values), mine));
}

// ---- PresentPeers

PresentPeers::PresentPeers(const Program& program, Messenger& messenger, const std::vector<Rank>& present,
                           std::function<void(std::span<float>)> fill)
    : program_(program), messenger_(messenger), fill_(std::move(fill)) {
  for (const GroupId id : program.groups.ids()) {
    const std::vector<Rank> members = members_among(program.groups[id], present);
    if (std::find(members.begin(), members.end(), messenger.rank()) != members.end())
      groups_.emplace(id, Communicator(messenger, context(Domain::present_groups, at(id.value())), members));
  }
}

Moved PresentPeers::send(Rank, const StageMessage&, std::span<const float>, Posted) {
  break_promise("a message between ranks of which one is imagined", __FILE__, __LINE__);
}
Moved PresentPeers::receive(Rank, const StageMessage&, std::span<float>, Posted) {
  break_promise("a message between ranks of which one is imagined", __FILE__, __LINE__);
}

Moved PresentPeers::collect(GroupId id, const GroupCall& asked, std::span<float> values, Posted mine) {
  Communicator& here = groups_.at(id);
  const Group& group = program_.groups[id];
  const CollectiveCall call = call_of(asked);
  if (call.kind == CollectiveKind::all_reduce)
    return await(messenger_, here.start(call, bytes_of(values), mine));
  const auto part_of_member = [&](Rank member) {
    return part(values, place_in(group, member), group.ranks.size());
  };
  std::vector<std::span<std::byte>> parts;
  for (const Rank member : here.members()) parts.push_back(bytes_of(part_of_member(member)));
  const Moved moved = await(messenger_, here.start_parts(call, parts, mine));
  if (call.kind == CollectiveKind::reduce_scatter) return moved;
  for (const Rank member : group.ranks)
    if (std::find(here.members().begin(), here.members().end(), member) == here.members().end())
      fill_(part_of_member(member));
  return moved;
}

}  // namespace motley
