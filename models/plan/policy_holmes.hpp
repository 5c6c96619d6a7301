// Holmes (arXiv:2312.03549, github.com/CodexDive/Holmes): islands of chips with one family of NICs; data parallelism
// stays in an island and only pipelines cross; layers by the islands' measured speeds; the optimizer is overlapped.
// Read next: models/strategy/partition.hpp, models/cost/carrier.hpp.
#pragma once

#include <vector>

#include "models/plan/policy.hpp"

namespace motley {

// Holmes's standard bucket: elements of gradients that are reduced together (`--reduce-bucket-size`).
inline constexpr std::int64_t kHolmesBucket = 500'000'000;

// Turns on the overlapped optimizer of Megatron-LLaMA, which Holmes took over: its state is divided among the
// replicas, and gradients are reduced in buckets of kHolmesBucket elements beside the backward.
void overlap_optimizer(Job& job);

// The groups of the cluster in Holmes's order: InfiniBand, then RoCE, then the rest, each in the order of the cluster.
std::vector<int> islands_in_order(const Cluster& cluster);

Proposals propose_holmes(const PolicyInput& input);

}  // namespace motley
