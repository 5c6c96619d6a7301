// The text of a new scenario: the keys that most people change, with a comment each that explains it and gives its
// choices. Read next: new.cpp, models/plan/first_layout.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/check/memory.hpp"

namespace motley {

// What is asked for; 0 and empty texts: not said.
struct NewScenario {
  std::string model;    // a name, or the path of a config.json
  std::string cluster;  // a name or path, in place of the three below
  std::string chip;     // a name or path
  std::int64_t nodes = 0, chips_per_node = 0;
  std::int64_t global_batch = 0, sequence = 0;
};

struct WrittenScenario {
  std::string text;
  std::string strategy;  // "tensor 8 x pipeline 2 x data 2"
  int chips = 0;
  std::vector<StageMemory> memory;
};

// `cluster:` of that scenario, with comments.
std::string cluster_text(const NewScenario& asked);

// Writes a scenario that check() accepts. Its nodes are those of a cluster that ships with the same chip, or, where
// none does, with the most similar one. `path` is where the text is to stand. Throws Refusal no-plan if no layout that
// was tried fits, and refusals of what it reads.
WrittenScenario write_scenario(const NewScenario& asked, const std::string& path);

}  // namespace motley
