// A rank's part of the parameters: which elements of the whole it holds, their first values, and AdamW. The first
// value of an element depends only on (seed, parameter, index in the whole), so every Strategy starts from the same
// values. Read next: hw/rank/memory.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/strategy/strategy.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

// For each element of shard `tensor_index` of `tp`, row-major, its index in the whole parameter; -1 in padded rows of
// the vocabulary.
std::vector<std::int64_t> shard_elements(const Parameter& parameter, std::int64_t tp,
                                         std::int64_t tensor_index);

// The indices, in a shard of `tp`, of the elements that part `part` of `parts` equal parts holds: a finer cut along the
// same axis. A replicated parameter has one part.
std::vector<std::int64_t> part_elements(const Parameter& parameter, std::int64_t tp, std::int64_t part,
                                        std::int64_t parts);

// Fills `values`, which hold the shard, with Normal(0, init_std) by Box and Muller (1958) over a counter-based
// generator (splitmix64, Steele et al. 2014), or with init_value; padded rows with 0. `before`: if `parameter` has only
// a part of the experts, how many elements of the whole come before its own.
void fill_initial(const Parameter& parameter, std::uint64_t seed, std::int64_t tp, std::int64_t tensor_index,
                  std::span<float> values, std::int64_t before = 0);

// One step of AdamW (arXiv:1711.05101), bias-corrected, decay decoupled and only where Parameter::decays. `step` counts
// from 1. `means` and `squares` are the first and second moments. All spans have the same length.
void adamw(const Train& train, bool decays, std::int64_t step, std::span<const float> gradient,
           std::span<float> means, std::span<float> squares, std::span<float> values);

// Counter-based random 64 bits: the same for the same three numbers, everywhere and in any order.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter);

}  // namespace motley
