// HeteroAuto of H2 (arXiv:2505.17548): a cost formula chooses, under one number of replicas, tensor parallelism,
// stages, layers, recompute and offload of each type of chips; then a type may be split in sub-groups that differ.
// Types with larger memory take earlier stages. Read next: models/plan/type_degrees.hpp,
// models/report/published_metrics.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/plan/policy.hpp"

namespace motley {

// The groups of the cluster, the largest memory of a chip first; equal ones in the order of the cluster.
std::vector<int> groups_by_memory(const Cluster& cluster);

// T = max_i (b T_i + alpha sum_{j != i} T_j + U_i): b micro-batches, T_i seconds of a stage's forward and backward, U_i
// of its update; alpha 1 for 1F1B, 0 for an ideal zero-bubble schedule.
double hetero_auto_step_s(std::span<const double> stage_s, std::span<const double> update_s,
                          std::int64_t micro_batches, double alpha = 1.0);

// Layers such that the longest stage is as short as possible, each at least one and at most `most`. Empty: the stages
// cannot hold all layers. `layer_s`: seconds of a layer in each stage; `fixed_s`: seconds that it has without layers.
std::vector<std::int64_t> balanced_layers(std::int64_t layers, std::span<const double> layer_s,
                                          std::span<const double> fixed_s,
                                          std::span<const std::int64_t> most);

Proposals propose_heteroauto(const PolicyInput& input);

}  // namespace motley
