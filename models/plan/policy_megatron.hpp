// Frameworks that know nothing of chips: Megatron-LM (arXiv:2104.04473), and two that build on it and with which
// Holmes (arXiv:2312.03549) is compared. Read next: models/plan/uniform_search.hpp.
#pragma once

#include "models/plan/policy.hpp"

namespace motley {

// megatron: the distributed optimizer (zero 1), nothing overlapped. megatron_llama: the optimizer overlapped, in
// buckets of 5e8 elements. megatron_deepspeed: ZeRO 1 in pipelines, ZeRO 1 to 3 without.
Proposals propose_megatron(PlanPolicy policy, const PolicyInput& input);

}  // namespace motley
