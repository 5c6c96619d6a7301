// The same job on a cluster with other groups: with more nodes, with a new group, without a group. The job's strategy
// is dropped. Read next: models/plan/purchase.hpp, models/plan/certificate.hpp.
#pragma once

#include <optional>
#include <string>

#include "models/scenario/job.hpp"

namespace motley {

// `nodes` more nodes of the group.
Job with_more_nodes(const Job& job, int group, int nodes);
// The group, joined to every other by a kind of NIC that both have (InfiniBand before RoCE before Ethernet). Assumes:
// networks that do not name their groups take it in.
Job with_group(const Job& job, const NodeGroup& group);
// Throws a std::logic_error if the cluster has no other group.
Job without_group(const Job& job, int group);
// A link over a kind of NIC that both groups have; nothing: they have none in common.
std::optional<Job> with_link(const Job& job, int group, int other);

}  // namespace motley
