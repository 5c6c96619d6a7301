#include "models/plan/policy.hpp"

#include <algorithm>

#include "models/base/refusal.hpp"
#include "models/plan/policy_heteroauto.hpp"
#include "models/plan/policy_hethub.hpp"
#include "models/plan/policy_holmes.hpp"
#include "models/plan/policy_megatron.hpp"

namespace motley {
namespace {

// Whether RDMA is there, but no kind of it joins all groups.
bool has_mixed_rdma(const Cluster& cluster) {
  const auto count = static_cast<int>(cluster.groups.size());
  const auto joins_all = [&](NicKind kind) {
    for (int group = 0; group < count; ++group)
      for (int other = group; other < count; ++other)
        if (!are_joined(cluster, group, other, kind)) return false;
    return true;
  };
  const bool has_rdma = std::any_of(cluster.groups.begin(), cluster.groups.end(), [](const NodeGroup& group) {
    return std::any_of(group.nics.begin(), group.nics.end(),
                       [](const Nic& nic) { return nic.kind != NicKind::ethernet; });
  });
  return has_rdma && !joins_all(NicKind::infiniband) && !joins_all(NicKind::roce);
}

}  // namespace

void use_transport(PlanPolicy policy, Cluster& cluster) {
  if (cluster.transport == TransportPolicy::sockets) return;
  switch (policy) {
    case PlanPolicy::holmes:
      cluster.transport = TransportPolicy::holmes;
      return;
    case PlanPolicy::hethub:
    case PlanPolicy::heteroauto:
      cluster.transport = TransportPolicy::by_group;
      return;
    case PlanPolicy::megatron:
    case PlanPolicy::megatron_llama:
    case PlanPolicy::megatron_deepspeed:
      cluster.transport = has_mixed_rdma(cluster) ? TransportPolicy::sockets : TransportPolicy::by_group;
      return;
    case PlanPolicy::optimal:
    case PlanPolicy::all:
      return;
  }
}

Proposals propose(PlanPolicy policy, const PolicyInput& input) {
  switch (policy) {
    case PlanPolicy::holmes:
      return propose_holmes(input);
    case PlanPolicy::hethub:
      return propose_hethub(input);
    case PlanPolicy::heteroauto:
      return propose_heteroauto(input);
    case PlanPolicy::megatron:
    case PlanPolicy::megatron_llama:
    case PlanPolicy::megatron_deepspeed:
      return propose_megatron(policy, input);
    case PlanPolicy::optimal:
    case PlanPolicy::all:
      break;
  }
  MOTLEY_CHECK(!"a policy that follows a published system");
  return {};
}

std::string_view recollection_of(PlanPolicy policy) {
  switch (policy) {
    case PlanPolicy::optimal:
      return "follows no publication";
    case PlanPolicy::holmes:
      return "NICs, partition and buckets follow its published code; degrees, micro-batch and recompute, "
             "which its "
             "scripts set by hand, are ours, and so is reducing gradients once a step";
    case PlanPolicy::hethub:
      return "that only pipelines cross types, that a predictor judges, and non-uniform layers are "
             "published; the "
             "search tree is recalled, unverified, and its order is ours";
    case PlanPolicy::heteroauto:
      return "that a cost model searches in two stages, with large memory first, is published; its formula "
             "and both "
             "stages are recalled, unverified";
    case PlanPolicy::megatron:
      return "uniform degrees and layers are published; that the best of them is looked for is ours";
    case PlanPolicy::megatron_llama:
      return "as megatron; buckets and overlap follow Holmes's published code, which took them over";
    case PlanPolicy::megatron_deepspeed:
      return "as megatron; that ZeRO 2 and 3 need pipelines of one stage is recalled, unverified, and its "
             "all-reduce "
             "of gradients in longer ones is not modelled";
    case PlanPolicy::all:
      break;
  }
  return {};
}

}  // namespace motley
