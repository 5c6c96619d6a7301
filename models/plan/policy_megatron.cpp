// Assumes: DeepSpeed divides gradients and parameters (ZeRO 2, 3) in pipelines of one stage only, as its engine for
// pipelines refuses them; there it sums gradients by an all-reduce, which is slower than the reduce-scatter here.
#include "models/plan/policy_megatron.hpp"

#include <utility>

#include "models/base/index.hpp"
#include "models/plan/policy_holmes.hpp"
#include "models/plan/uniform_search.hpp"

namespace motley {
namespace {

constexpr std::size_t kUniformProposed = 48, kDividedProposed = 8;

void append(Proposals& proposals, PlanPolicy policy, UniformSearch search) {
  proposals.explored += search.explored;
  for (std::size_t i = 0; i < search.best.size(); ++i) {
    Job& job = search.best[i];
    if (policy == PlanPolicy::megatron_llama) overlap_optimizer(job);
    use_transport(policy, job.cluster);
    proposals.list.push_back({std::move(job), search.least_s[i]});
  }
}

}  // namespace

Proposals propose_megatron(PlanPolicy policy, const PolicyInput& input) {
  Proposals proposals;
  append(proposals, policy, search_uniform(input.job, input.pricer, kUniformProposed));
  if (policy != PlanPolicy::megatron_deepspeed) return proposals;
  for (const int zero : {2, 3})
    append(proposals, policy,
           search_uniform(input.job, input.pricer, kDividedProposed, {.zero = zero, .most_stages = 1}));
  return proposals;
}

}  // namespace motley
