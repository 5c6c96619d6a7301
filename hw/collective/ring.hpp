// Collectives over a Transport, as CollectiveKind defines them. Along a ring (Patarasuk and Yuan 2009,
// doi:10.1016/j.jpdc.2008.09.002): R-1 steps reduce and scatter, R-1 gather; an all-reduce is the one and then the
// other, so every rank ends with the same bits, and they are those of the two called in turn. An all_to_all exchanges
// pairwise, in R-1 steps. It chooses no algorithm: there is one for each. Read next: hw/transport/transport.hpp.
#pragma once

#include <span>
#include <vector>

#include "hw/transport/transport.hpp"
#include "models/program/program.hpp"

namespace motley {

// Part i of R of `values`, as CollectiveKind cuts them.
std::span<float> part(std::span<float> values, std::size_t i, std::size_t R);
std::size_t place_in(const Group& group, Rank rank);

// All are in place over `values`, S of CollectiveKind, and called by all the group's ranks with the same count, op and
// tag. They return when the last member was ready, and which one that was. Scratch: one part, of an all_to_all a copy.
Posted ring_reduce_scatter(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                           ReduceOp reduce, std::span<float> values, Posted mine);
Posted ring_all_gather(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                       std::span<float> values, Posted mine);
Posted ring_all_reduce(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                       ReduceOp reduce, std::span<float> values, Posted mine);
// The number of values is a multiple of the group's size.
Posted pairwise_all_to_all(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                           std::span<float> values, Posted mine);

// The one of that kind. `reduce` matters only where something is reduced.
Posted run_collective(CollectiveKind kind, Transport& transport, const Group& group, Channel channel,
                      std::uint64_t tag, ReduceOp reduce, std::span<float> values, Posted mine);

}  // namespace motley
