// The file of a scenario with the strategy that a plan chose. Read next: models/plan/planner.hpp.
#pragma once

#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/strategy/strategy.hpp"

namespace motley {

// The text of a scenario with `strategy` in place of its `plan` or its own strategy; all else stays as it was written,
// comments too. `root` is the text's parsed map. Throws Refusal("not-in-lines") unless each of the map's keys begins a
// line.
std::string with_strategy(const std::string& text, const Yaml& root, const Strategy& strategy);

}  // namespace motley
