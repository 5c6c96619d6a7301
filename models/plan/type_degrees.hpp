// Degrees of pipelines that run through every group of a cluster: tensor parallelism and stages of each group, and for
// all of them the replicas and the micro-batch. Read next: models/plan/policy_hethub.hpp, policy_heteroauto.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/plan/pipeline_search.hpp"
#include "models/plan/stage_price.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct TypeDegrees {
  std::int64_t micro_batch = 1, replicas = 1, micro_batches = 1;
  std::vector<std::int64_t> tensor, stages;  // by group
  std::vector<double> layer_s;               // by group: least seconds of a layer, forward and backward
  // (m + p - 1) times the longest of p stages, with layers as balanced as fractions could be, and with even ones.
  double balanced_s = 0, even_s = 0;
  std::int64_t all_stages() const;
};

// Every choice of degrees. A group has as many stages as its chips fill; if the layers are too few, the groups with the
// most stages have fewer.
std::vector<TypeDegrees> type_degrees(const Job& job, StagePricer& pricer);

// The pipeline through the groups in that order, nothing recomputed, without layers yet.
PlannedPipeline in_order(const TypeDegrees& degrees, std::span<const int> order);

}  // namespace motley
