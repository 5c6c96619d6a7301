// The figures of StageMemory by name, in the order in which every table, message and JSON has them.
#pragma once

#include <string>
#include <vector>

#include "models/check/memory.hpp"

namespace motley {

// What stands beyond the tensors.
std::int64_t beyond_tensors(const StageMemory& stage);
// "communication buffers 808 MiB, driver and libraries 512 MiB": those that are not 0.
std::string describe_beyond(const StageMemory& stage);
// Everything that makes the peak up, logits as part of the activations.
std::string describe_memory(const StageMemory& stage);
// Lines below a table: what is beyond the tensors of the fullest stage, whose logits are how large, what hosts hold.
std::string print_memory_notes(const std::vector<StageMemory>& memory);

}  // namespace motley
