// How many tokens each expert is expected to get when routing is skewed: shares by Zipf's law, in an order drawn from
// the seed. A real router decides by itself; this is for sizes and prices. Read next: models/compile/kernel_writer.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

// Share of all routed copies that each expert gets, the sum 1: the expert that stands r-th (from 1) gets r^-zipf of it,
// and none more than 1/per_token, as a token takes an expert once. zipf 0: all alike.
std::vector<double> expert_shares(const Experts& experts, double zipf, std::uint64_t seed,
                                  std::int64_t layer);

// Expected rows of the busiest expert when `tokens` are routed, rounded up.
std::int64_t busiest_rows(const Experts& experts, double zipf, std::uint64_t seed, std::int64_t layer,
                          std::int64_t tokens);

// How the tokens of a micro-batch are exchanged where the experts are divided over `parts` ranks (Strategy's
// expert_parallel), of which each routes `tokens` of its own. What one rank sends another has a fixed place, as large
// as it can become: a token sends a rank as many copies as it passes experts there, at most.
struct ExpertExchange {
  std::int64_t parts = 1, tokens = 0;
  std::int64_t segment_rows = 0;  // of that place
  std::int64_t rows = 0;          // of all places: what memory must hold
  std::int64_t sent = 0;          // copies that a rank sends, its own experts' included
  std::int64_t expected_rows =
      0;  // that the rank of the busiest experts is expected to get; `sent` where none is busier
};
// `train` gives expert_skew, expert_room and seed. Refuses a skew for which that room is too small.
ExpertExchange expert_exchange(const Experts& experts, std::int64_t tokens, std::int64_t parts,
                               const Train& train, std::int64_t layer);
// Rows of the place alone, for who needs no expectation.
std::int64_t exchange_segment(const Experts& experts, std::int64_t tokens, std::int64_t parts, double room);

// How many tokens a rank sends each rank, and each node of `ranks_a_node` consecutive ranks, that has any of their
// experts: those with most, over the copies that an even all_to_all of ExpertExchange::expected_rows would send a rank.
// Assumes: a token takes any set of experts that its groups allow with a chance in proportion to the product of their
// odds, which is exact where routing is even; the first layer's order of experts stands for all layers'.
struct DistinctCopies {
  double a_rank = 0, a_node = 0;
};
DistinctCopies distinct_copies(const ExpertRouting& routing, std::int64_t parts, std::int64_t ranks_a_node);

// The tokens that slice `slice` of `slices` routes: [first, last) of `tokens`, the last slice shorter if need be.
std::int64_t slice_size(std::int64_t tokens, std::int64_t slices);

}  // namespace motley
