// Random models, training shapes and strategies that a framework can say, for the law that an export and an import
// return them. Options that change nothing (how a single stage sends activations) keep their standard values: an import
// cannot know what they were.
#pragma once

#include <optional>

#include "models/scenario/job.hpp"
#include "tests/support/dice.hpp"

namespace motley::tests {

// Draws jobs until one is legal; nothing if it never is. All its ranks fit on `host-4`-like clusters of 64 chips.
Job megatron_job(unsigned seed);

}  // namespace motley::tests
