// What the stages of a plan may recompute.
#pragma once

#include <array>
#include <vector>

#include "models/strategy/recompute.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

// In the plan of a published policy, or in that of a framework.
inline constexpr std::array kPlannedRecomputes = {Recompute::none, Recompute::selective, Recompute::full};

// In any other plan: the same, and modules that give back many bytes for the time in which they are computed again:
// norms and activations, and then all products but attention's own. Only what the model has is there. The first one
// keeps everything, the last one nothing but inputs of layers.
// What a layer of Llama 3 70B keeps, and how much longer a step takes (tp 1 on H100, 4,096 tokens, by simulation,
// 2026-11-29): attention 6 % less and 2.3 % longer; norms and activations 32 % and 2.7 %; with the first product of the
// feed-forward part 73 % and 14 %; full 91 % and 27 %.
std::vector<Recompute> planned_recomputes(const Transformer& transformer);

}  // namespace motley
