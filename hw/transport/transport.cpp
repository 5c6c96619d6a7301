#include "hw/transport/transport.hpp"

#include <cstring>
#include <set>

#include "models/base/refusal.hpp"

namespace motley {

std::string_view name_of(Channel channel) {
  switch (channel) {
    case Channel::activation:
      return "activation";
    case Channel::gradient:
      return "gradient";
    case Channel::tensor_group:
      return "tensor group";
    case Channel::data_group:
      return "data group";
    case Channel::embedding_group:
      return "embedding group";
    case Channel::expert_group:
      return "expert group";
    case Channel::gather_group:
      return "gather group";
    case Channel::activation_gather:
      return "activation gather";
    case Channel::gradient_gather:
      return "gradient gather";
    case Channel::context_group:
      return "context group";
    case Channel::tensor_gradient:
      return "tensor gradient";
  }
  return "";
}

Channel channel_of(GroupKind kind) {
  switch (kind) {
    case GroupKind::tensor:
      return Channel::tensor_group;
    case GroupKind::data:
      return Channel::data_group;
    case GroupKind::embedding:
      return Channel::embedding_group;
    case GroupKind::expert:
      return Channel::expert_group;
    case GroupKind::gather:
      return Channel::gather_group;
    case GroupKind::activation_gather:
      return Channel::activation_gather;
    case GroupKind::gradient_gather:
      return Channel::gradient_gather;
    case GroupKind::context:
      return Channel::context_group;
    case GroupKind::tensor_gradient:
      return Channel::tensor_gradient;
  }
  return Channel::tensor_group;
}

namespace {

// For each group, whether it runs an all_to_all.
IdTable<GroupId, bool> exchanges_pairwise(const Program& program) {
  IdTable<GroupId, bool> pairwise(program.groups.size());
  for (const RankEntry& entry : program.ranks)
    for (const Stream& stream : program.rank_programs[entry.rank_program].streams)
      for (const Instruction& instruction : stream.instructions) {
        const Collective* const collective = instruction.as<Collective>();
        if (collective == nullptr || collective->kind != CollectiveKind::all_to_all) continue;
        if (const auto group = entry.groups[collective->slot]) pairwise[*group] = true;
      }
  return pairwise;
}

}  // namespace

std::size_t bytes_before_zeros(std::span<const std::byte> bytes) {
  std::size_t end = bytes.size();
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  for (; end >= kWord; end -= kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + end - kWord, kWord);
    if (word != 0) break;
  }
  return end;
}

std::vector<Link> links_of(const Program& program) {
  std::set<Link> links;
  for (Rank rank : program.ranks.ids()) {
    const RankEntry& entry = program.ranks[rank];
    for (const PeerSlot slot : entry.peers.ids())
      // Activations go to the next stage, gradients to the previous one.
      if (const auto peer = entry.peers[slot])
        links.insert(
            {rank, *peer, is_next(slot) ? Channel::activation : Channel::gradient, slot.value() / 2});
  }
  const IdTable<GroupId, bool> pairwise = exchanges_pairwise(program);
  for (const GroupId id : program.groups.ids()) {
    const Group& group = program.groups[id];
    const Channel channel = channel_of(group.kind);
    for (std::size_t i = 0; group.ranks.size() > 1 && i < group.ranks.size(); ++i)
      links.insert({group.ranks[i], group.ranks[(i + 1) % group.ranks.size()], channel, 0});
    for (std::size_t i = 0; pairwise[id] && i < group.ranks.size(); ++i)
      for (std::size_t j = 0; j < group.ranks.size(); ++j)
        if (i != j) links.insert({group.ranks[i], group.ranks[j], channel, 0});
  }
  return {links.begin(), links.end()};
}

}  // namespace motley
