// The shapes that a pipeline's replicas may have, and the rows of groups on which its stages may stand. Read next:
// models/plan/pipeline_search.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "models/plan/pipeline_search.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct ReplicaShape {
  std::int64_t micro_batch = 1, replicas = 1, context_parallel = 1, expert_parallel = 1;
};

std::vector<std::int64_t> sorted_divisors(std::int64_t number);

// Sequences of a micro-batch that are looked at. Assumes: more than eight gain nothing once they have more than 65,536
// tokens.
std::int64_t most_sequences(const Train& train);

// All shapes; first those whose replicas have about eight nodes each.
std::vector<ReplicaShape> shapes_of(const Job& job, const PipelineForm& form);

// Whether all its pipelines are too large to be compiled.
bool is_too_large(const Job& job, const ReplicaShape& shape);

using Row = std::vector<RowSegment>;  // from the first stage to the last

bool has_unlike_cuts(const Row& row);

// All sets of segments on different groups, each by its first group in the cluster first.
std::vector<Row> segment_sets(const Cluster& cluster);

// The rows that have these segments, in every order that the form allows.
std::vector<Row> orders_of(Row segments, const PipelineForm& form);

}  // namespace motley
