// The policies by which published systems choose a strategy, each in a file of its own. A policy proposes jobs; the
// planner judges them by simulation, and the fastest of them is the policy's plan. Read next:
// models/plan/policy_holmes.hpp, planner.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/plan/stage_price.hpp"
#include "models/scenario/job.hpp"
#include "models/scenario/plan_request.hpp"

namespace motley {

struct Proposal {
  Job job;
  double least_s = 0;  // no simulation of the job takes less
  int variant = 0;     // index in Proposals::variants
};

struct Proposals {
  std::vector<Proposal> list;  // in the order in which they are judged
  std::vector<std::string>
      variants;                  // forms that the policy tries, each with a result of its own; may be empty
  bool ends_with_first = false;  // the first that stands is the plan: the policy's own forms chose it
  std::int64_t explored = 0, pruned = 0;  // pipelines by closed forms
  std::vector<std::string> notes;         // what the policy measured and chose on the way, a sentence each
};

// Simulates jobs that are no proposals themselves, and returns their steps; nothing: a job does not stand.
using Measure = std::function<std::vector<std::optional<double>>(const std::vector<Job>& jobs)>;

// What a policy chooses from.
struct PolicyInput {
  const Job& job;  // without a strategy of its own
  StagePricer& pricer;
  const Measure& measure;
};

// The proposals of a policy; not for `optimal` and `all`.
Proposals propose(PlanPolicy policy, const PolicyInput& input);

// The policies that follow a published system, in the order in which `optimal` starts with them.
inline constexpr std::array kPublishedPolicies = {PlanPolicy::heteroauto,     PlanPolicy::holmes,
                                                  PlanPolicy::hethub,         PlanPolicy::megatron,
                                                  PlanPolicy::megatron_llama, PlanPolicy::megatron_deepspeed};

// What of a policy follows its system's publication or code, and what is recalled, rebuilt or our own choice.
std::string_view recollection_of(PlanPolicy policy);

// Gives the cluster the transport of the policy's system, whatever it says; under `sockets` it stays. holmes: one kind
// of NIC a group of ranks. hethub, heteroauto: one that every pair has. megatron and those on it: sockets between all
// nodes where no kind of RDMA joins them all.
void use_transport(PlanPolicy policy, Cluster& cluster);

}  // namespace motley
