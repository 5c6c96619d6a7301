// Ring all-reduce (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002): R-1 steps reduce and scatter, R-1 gather;
// each rank sends 2(R-1)/R of the data, and every rank ends with the same bits. It chooses no algorithm: it is the one
// there is. Read next: hw/transport/transport.hpp.
#pragma once

#include <span>
#include <vector>

#include "hw/transport/transport.hpp"
#include "models/program.hpp"

namespace motley {

// In place over the group's ranks, which all call it with the same count, op and tag. Scratch: one chunk. Returns when
// the last member was ready, and which one that was.
Posted ring_all_reduce(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                       ReduceOp reduce, std::span<float> values, Posted mine);

Channel channel_of(GroupKind kind);

}  // namespace motley
