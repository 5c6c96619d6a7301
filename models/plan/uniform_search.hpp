// Strategies that know nothing of chips: one tensor-parallel degree, one number of stages, even layers on all chips, as
// Megatron-LM's three degrees say it (arXiv:2104.04473). Read next: models/plan/planner.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/plan/stage_price.hpp"

namespace motley {

struct UniformSearch {
  std::vector<Job> best;      // the lowest estimates first
  std::int64_t explored = 0;  // degrees, micro-batches and ways to recompute that fit
};

// The `most` best strategies of tensor x pipeline x data parallelism over all chips of the job, under 1F1B with zero 1.
UniformSearch search_uniform(const Job& job, StagePricer& pricer, std::size_t most);

}  // namespace motley
