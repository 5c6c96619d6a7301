#include "hw/transport/transport.hpp"

#include <set>

#include "models/refusal.hpp"

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
  }
  return "";
}

std::vector<Link> links_of(const Program& program) {
  std::set<Link> links;
  for (Rank rank = 0; rank < program.rank_count(); ++rank) {
    const RankEntry& entry = program.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t slot = 0; slot < entry.peers.size(); ++slot)
      if (entry.peers[slot] >= 0)  // activations go to the next stage, gradients to the previous one
        links.insert({rank, entry.peers[slot],
                      is_next(static_cast<int>(slot)) ? Channel::activation : Channel::gradient,
                      static_cast<int>(slot) / 2});
  }
  for (const Group& group : program.groups) {
    const Channel channel = group.kind == GroupKind::tensor ? Channel::tensor_group
                            : group.kind == GroupKind::data ? Channel::data_group
                                                            : Channel::embedding_group;
    for (std::size_t i = 0; group.ranks.size() > 1 && i < group.ranks.size(); ++i)
      links.insert({group.ranks[i], group.ranks[(i + 1) % group.ranks.size()], channel, 0});
  }
  return {links.begin(), links.end()};
}

}  // namespace motley
