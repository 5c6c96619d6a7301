// The parts of fp32 payloads that collectives move: part i belongs to the member at place i. Read next:
// hw/communicator/communicator.hpp.
#pragma once

#include <span>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

// Part i of R of `values`, as CollectiveKind cuts them.
std::span<float> part(std::span<float> values, std::size_t i, std::size_t R);
std::size_t place_in(const Group& group, Rank rank);

// The parts of `values` that hold, after such a collective, what came from other ranks: the whole of a sum, this rank's
// part of a scattered one, the parts of all others where nothing is reduced.
std::vector<std::span<float>> parts_that_come(CollectiveKind kind, const Group& group, Rank rank,
                                              std::span<float> values);

}  // namespace motley
