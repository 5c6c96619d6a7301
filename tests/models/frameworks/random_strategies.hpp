// Random models, training shapes and strategies that a framework can say, for the law that an export and an import
// return them. Options that change nothing (how a single stage sends activations) keep their standard values: an import
// cannot know what they were.
#pragma once

#include <optional>

#include "models/scenario/job.hpp"
#include "tests/support/dice.hpp"

namespace motley::tests {

// Draws until a job is legal. Its cluster is empty.
Job megatron_job(unsigned seed);
// The same for FlagScale, with stages of unlike degrees on the two groups of unlike_cluster().
Job flagscale_job(unsigned seed);
// The same for DeepSpeed: one stage, divided by ZeRO.
Job deepspeed_job(unsigned seed);

// Two groups, `fast` and `slow`, of 64 nodes with 8 chips each, unlike chips, and hosts with memory.
Cluster unlike_cluster();

}  // namespace motley::tests
