// Collectives in which some members of the group take no part, because they are only imagined. Those that do exchange
// what they have, pairwise. Read next: hw/collective/ring.hpp, hw/world/real_ranks.hpp.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "hw/transport/transport.hpp"
#include "models/program/program.hpp"

namespace motley {

// The members of a group that are among `ranks`, in the order of the group.
std::vector<Rank> members_among(const Group& group, const std::vector<Rank>& ranks);

// The links that run_among() uses for groups of which several members, but not all, are among `ranks`.
std::vector<Link> partial_links(const Program& program, const std::vector<Rank>& ranks);

// As run_collective(), among `members` of the group alone, of which this rank is one. The others add nothing to a sum;
// `fill` fills in each part that one of them would have brought.
Posted run_among(const std::vector<Rank>& members, CollectiveKind kind, Transport& transport,
                 const Group& group, Channel channel, std::uint64_t tag, ReduceOp reduce,
                 std::span<float> values, Posted mine, const std::function<void(std::span<float>)>& fill);

}  // namespace motley
