// HETHUB (arXiv:2405.16256): every type of chips has stages side by side, only pipelines cross types, and a tree of the
// types' order, stages and tensor parallelism, of replicas and micro-batch is searched, with uniform and with
// non-uniform layers. Read next: models/plan/type_degrees.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/plan/policy.hpp"

namespace motley {

// Layers in proportion to the stages' speeds, by largest remainder (the earlier stage of equal ones), at least one and
// at most `most` each. Empty: the stages cannot hold all layers. Equal speeds without limits give even_layers().
std::vector<std::int64_t> layers_in_proportion(std::int64_t layers, std::span<const double> speeds,
                                               std::span<const std::int64_t> most);

Proposals propose_hethub(const PolicyInput& input);

}  // namespace motley
