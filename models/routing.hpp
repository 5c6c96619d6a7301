// How many tokens each expert is expected to get when routing is skewed: shares by Zipf's law, in an order drawn from
// the seed. A real router decides by itself; this is for sizes and prices. Read next: models/kernel_writer.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "models/transformer.hpp"

namespace motley {

// Share of all routed copies that each expert gets, the sum 1: the expert that stands r-th (from 1) gets r^-zipf of it,
// and none more than 1/per_token, as a token takes an expert once. zipf 0: all alike.
std::vector<double> expert_shares(const Experts& experts, double zipf, std::uint64_t seed,
                                  std::int64_t layer);

// Expected rows of the busiest expert when `tokens` are routed, rounded up.
std::int64_t busiest_rows(const Experts& experts, double zipf, std::uint64_t seed, std::int64_t layer,
                          std::int64_t tokens);

}  // namespace motley
