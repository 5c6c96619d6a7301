// Strategies that know nothing of chips: one tensor-parallel degree, one number of stages, even layers on all chips, as
// Megatron-LM's three degrees say it (arXiv:2104.04473). Read next: models/plan/planner.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "models/plan/stage_price.hpp"

namespace motley {

struct UniformSearch {
  std::vector<Job> best;        // the lowest estimates first
  std::vector<double> least_s;  // of each of them: no simulation of it takes less
  std::int64_t explored = 0;    // degrees, micro-batches and ways to recompute that fit
};

// What replicas divide, and how many stages there are at most.
struct UniformForm {
  int zero = 1;  // more than 1: memory is not looked at, because prices of stages know zero 1 alone
  std::int64_t most_stages = std::numeric_limits<std::int64_t>::max();
};

struct UniformDegrees {
  std::int64_t tensor = 1, pipeline = 1, data = 1, micro_batch = 1, micro_batches = 1;
  Recompute recompute;
};

// The job with that strategy, under 1F1B. Nothing: it is not legal.
std::optional<Job> with_degrees(const Job& job, const UniformDegrees& degrees, int zero);

// The `most` best strategies of tensor x pipeline x data parallelism over all chips of the job, under 1F1B.
UniformSearch search_uniform(const Job& job, StagePricer& pricer, std::size_t most,
                             const UniformForm& form = {});

}  // namespace motley
