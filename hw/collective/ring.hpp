// Collectives over a Transport, as CollectiveKind defines them. Along a ring (Patarasuk and Yuan 2009,
// doi:10.1016/j.jpdc.2008.09.002) R-1 steps reduce and scatter, and R-1 steps gather. An all-reduce is a reduce-scatter
// and then an all-gather, so every rank ends with the same bits. An all_to_all exchanges pairwise in R-1 steps. Each
// kind has one algorithm, so this file chooses none. Read next: hw/transport/transport.hpp.
#pragma once

#include <span>
#include <vector>

#include "hw/transport/transport.hpp"
#include "models/program/program.hpp"

namespace motley {

// Part i of R of `values`, as CollectiveKind cuts them.
std::span<float> part(std::span<float> values, std::size_t i, std::size_t R);
std::size_t place_in(const Group& group, Rank rank);
// Adds `from` to `into`, or keeps the larger or the smaller of each two values.
void reduce_into(std::span<float> into, std::span<const float> from, ReduceOp reduce);

// The parts of `values` that hold, after such a collective, what came from other ranks: the whole of a sum, this rank's
// part of a scattered one, the parts of all others where nothing is reduced.
std::vector<std::span<float>> parts_that_come(CollectiveKind kind, const Group& group, Rank rank,
                                              std::span<float> values);

// All work in place on `values` (S of CollectiveKind). All ranks of the group call them with the same count, op and
// tag. They return when the last member was ready, and which member that was. Their scratch memory is one part of
// `values`; an all_to_all copies all of them.
Posted ring_reduce_scatter(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                           ReduceOp reduce, std::span<float> values, Posted mine);
Posted ring_all_gather(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                       std::span<float> values, Posted mine);
Posted ring_all_reduce(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                       ReduceOp reduce, std::span<float> values, Posted mine);
// The number of values must be a multiple of the group's size.
Posted pairwise_all_to_all(Transport& transport, const Group& group, Channel channel, std::uint64_t tag,
                           std::span<float> values, Posted mine);

// Calls the function for that kind. `reduce` matters only to the kinds that reduce.
Posted run_collective(CollectiveKind kind, Transport& transport, const Group& group, Channel channel,
                      std::uint64_t tag, ReduceOp reduce, std::span<float> values, Posted mine);

}  // namespace motley
