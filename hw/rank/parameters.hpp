// A rank's part of the parameters: which elements of the whole it holds, their first values, and AdamW. The first
// value of an element depends on (seed, parameter, index in the whole) alone, so every Strategy starts from the same
// model. Read next: hw/rank/memory.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/strategy/strategy.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

// Index in the whole parameter of each element of shard `tensor_index` of `tp`, row-major; -1 where a padded
// vocabulary row does not exist.
std::vector<std::int64_t> shard_elements(const Parameter& parameter, std::int64_t tp,
                                         std::int64_t tensor_index);

// Elements of a shard of `tp`, in its own order, which part `part` of `parts` equal ones holds: a finer cut along the
// same axis. A replicated parameter has one part.
std::vector<std::int64_t> part_elements(const Parameter& parameter, std::int64_t tp, std::int64_t part,
                                        std::int64_t parts);

// Normal(0, init_std) by Box and Muller (1958) over a counter-based generator (splitmix64, Steele et al. 2014), or
// init_value. Rows that do not exist are 0. `values` holds the shard. `before` elements of the whole stand before those
// of `parameter`, where that is a part of the experts.
void fill_initial(const Parameter& parameter, std::uint64_t seed, std::int64_t tp, std::int64_t tensor_index,
                  std::span<float> values, std::int64_t before = 0);

// One step of AdamW (arXiv:1711.05101), bias-corrected, decay decoupled and only where Parameter::decays. `step` counts
// from 1. `means` and `squares` are the first and second moments. All spans have the same length.
void adamw(const Train& train, bool decays, std::int64_t step, std::span<const float> gradient,
           std::span<float> means, std::span<float> squares, std::span<float> values);

// Counter-based random 64 bits: the same for the same three numbers, everywhere and in any order.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter);

}  // namespace motley
