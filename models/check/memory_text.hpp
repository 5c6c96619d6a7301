// The figures of StageMemory by name, in the order of every table, message and JSON.
#pragma once

#include <string>
#include <vector>

#include "models/check/memory.hpp"

namespace motley {

// Bytes beyond the tensors.
std::int64_t beyond_tensors(const StageMemory& stage);
// Lists the figures that are not 0: "communication buffers 808 MiB, driver and libraries 512 MiB".
std::string describe_beyond(const StageMemory& stage);
// Lists all parts of the peak, with logits as part of the activations.
std::string describe_memory(const StageMemory& stage);
// Lines below a table: memory of the fullest stage beyond its tensors, the largest logits of a stage, and offloaded
// memory.
std::string print_memory_notes(const std::vector<StageMemory>& memory);

}  // namespace motley
