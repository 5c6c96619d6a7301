// The file of a scenario with the strategy that a plan chose. Read next: models/plan/planner.hpp.
#pragma once

#include <optional>
#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"
#include "models/strategy/strategy.hpp"

namespace motley {

// The text of a scenario with `strategy` in place of its `plan` or its own strategy, and with a transport in place of
// its own where one is given; all else stays as it was written, comments too. `root` is the text's parsed map. Throws
// Refusal("not-in-lines") unless each of the map's keys begins a line.
std::string with_strategy(const std::string& text, const Yaml& root, const Strategy& strategy,
                          std::optional<TransportPolicy> transport = {});

}  // namespace motley
