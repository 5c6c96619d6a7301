// Pipelines of one shape that one bound holds for, and the bound, in steps of rising cost and strength. Read next:
// models/plan/shape_bound.hpp.
#pragma once

#include <cstdint>

#include "models/plan/pipeline_rows.hpp"
#include "models/plan/stage_price.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// What a bound has looked at. work: seconds of layers alone. time: stages, whose longest the others wait for. memory:
// also the bytes of stages that recompute nothing. all: bytes of all stages, and longest stages told apart more finely.
enum class BoundDetail : std::uint8_t { work, time, memory, all };

struct ShapeFamily {
  ReplicaShape shape;
  std::int64_t cut = 0;  // tensor parallelism of all stages; 0: each group may have another
  Schedule schedule = Schedule::one_f_one_b;
  int most_chunks = 1;                             // in each stage, under `interleaved`
  std::int64_t most_stages = 0;                    // 0: any number
  bool reduces_last = true, gathers_last = false;  // as PipelineForm says
};

// A rough estimate of the family's least step under 1F1B, as if memory had no end: it tells which one to look at first.
double likely_step_s(const Job& job, StagePricer& pricer, const ShapeFamily& family);

// No pipeline of the family takes less under 1F1B on an idle network; under other schedules, none is estimated to take
// less. Under 1F1B and with all details, it counts how long its ranks wait for the slowest of as many as they are;
// estimates do not. Infinite: there is none. A bound of `enough_s` or more need not be the best one.
double least_step_s(const Job& job, StagePricer& pricer, const ShapeFamily& family, BoundDetail detail,
                    double enough_s);

}  // namespace motley
