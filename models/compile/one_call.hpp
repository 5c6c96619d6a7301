// A Program of one instruction: a collective among chips, or messages between pairs of them. What is measured alone is
// also imagined alone. Read next: models/published/measured_collective.hpp, tools/commands/predict_calls.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

struct OneCall {
  // Nothing: the rank at each place of the first half sends to the one at the same place of the second half.
  std::optional<CollectiveKind> kind;
  std::int64_t bytes = 0;  // payload of CollectiveKind, or of each message
  // Without a kind: every rank sends to the next one and receives from the one before, all at once.
  bool in_ring = false;
};

// `chips`: the chip of each rank. A collective has one group, GroupId(0).
Program program_of(const OneCall& call, const std::vector<int>& chips);

}  // namespace motley
