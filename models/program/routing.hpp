// The number of tokens that each expert is expected to get when routing is skewed: shares by Zipf's law, in an order
// drawn from the seed. Real routers decide by themselves; these numbers are for sizes and prices. Read next:
// models/compile/kernel_writer.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

// Share of all routed copies that each expert gets; the sum is 1. The share of the r-th expert (from 1) is in
// proportion to r^-zipf, but at most 1/per_token, because a token takes an expert once. zipf 0: equal shares.
std::vector<double> expert_shares(const Experts& experts, double zipf, std::uint64_t seed,
                                  std::int64_t layer);

// Expected rows of the busiest expert when `tokens` tokens are routed, rounded up.
std::int64_t busiest_rows(const Experts& experts, double zipf, std::uint64_t seed, std::int64_t layer,
                          std::int64_t tokens);

// Share of all copies that the rank of the busiest experts is expected to get where the experts are divided over
// `parts` ranks.
double busiest_share(const Experts& experts, std::int64_t parts, double zipf, std::uint64_t seed,
                     std::int64_t layer);

// The exchange of a micro-batch's tokens where the experts are divided over `parts` ranks (Strategy's
// expert_parallel), and each rank routes `tokens` of its own. What one rank sends another has a fixed place in
// memory, of the largest possible size: a token sends a rank at most as many copies as it takes experts there.
struct ExpertExchange {
  std::int64_t parts = 1, tokens = 0;
  std::int64_t segment_rows = 0;  // rows of one such place
  std::int64_t rows = 0;          // rows of all places, for which memory is needed
  std::int64_t sent = 0;          // copies that a rank sends, with those for its own experts
  std::int64_t expected_rows =
      0;  // rows that the rank of the busiest experts is expected to get; `sent` if none is busier
};
// `train` gives expert_skew, expert_room and seed. Refuses a skew for which expert_room is too small.
ExpertExchange expert_exchange(const Experts& experts, std::int64_t tokens, std::int64_t parts,
                               const Train& train, std::int64_t layer);
// Rows of one place, for callers that need no expectation.
std::int64_t exchange_segment(const Experts& experts, std::int64_t tokens, std::int64_t parts, double room);

// The number of tokens that a rank sends to each rank, and to each node of `ranks_a_node` consecutive ranks, that has
// any of their experts: the largest such number, divided by the copies that an even all_to_all of
// ExpertExchange::expected_rows would send a rank.
// Assumes: a token takes any set of experts that its groups allow with a chance in proportion to the product of their
// odds, which is exact where routing is even; the first layer's order of experts stands for all layers.
struct DistinctCopies {
  double a_rank = 0, a_node = 0;
};
// Refuses ("program-too-large") a routing whose distinct_copies() over so many ranks would take more than seconds: its
// steps grow with the square of the experts of a token.
void refuse_dear_routing(const ExpertRouting& routing, std::int64_t parts);
DistinctCopies distinct_copies(const ExpertRouting& routing, std::int64_t parts, std::int64_t ranks_a_node);

// The number of tokens that each of `slices` slices routes; the last slice is shorter if need be.
std::int64_t slice_size(std::int64_t tokens, std::int64_t slices);

}  // namespace motley
