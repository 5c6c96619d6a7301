// What a plan must do without. Strategies are changed as a person would change their keys; where all NICs shall be
// Ethernet, the description of the cluster is. Read next: models/scenario/plan_request.hpp.
#pragma once

#include <optional>
#include <span>

#include "models/scenario/job.hpp"
#include "models/scenario/plan_request.hpp"

namespace motley {

// The job with a strategy that does without. Nothing: its strategy is not legal then. A strategy that does without
// already stays as it is.
std::optional<Job> ablated(Job job, std::span<const Ablation> ablations);

// Under `sockets`: no group has RDMA. RDMA NICs of groups that have Ethernet beside them go; the others become Ethernet
// at the same rates. Links and networks follow. The topology is built anew.
void use_ethernet_alone(Cluster& cluster);

}  // namespace motley
