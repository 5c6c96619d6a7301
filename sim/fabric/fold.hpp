// Folding: what a Program may put on the fabric, who must behave alike there, and what one of each class needs so that
// it stands for all. A lane of a class crosses a link as often as its whole class does, and links that everyone shares
// alike keep their part: folded and unfolded runs give the same times. Whatever is unlike is in a class of its own, so
// nothing is ever refused. It decides nothing about time: see sim/world/sim_world.cpp. Read next:
// models/world/symmetry.hpp, sim/fabric/fabric.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/cost/compute_cost.hpp"
#include "models/scenario/job.hpp"
#include "models/world/symmetry.hpp"
#include "sim/fabric/collective_plan.hpp"

namespace motley {

// What the fold has to know of a simulation beyond its Job.
struct FoldOptions {
  bool fold = false;        // false: everyone stands for itself
  std::vector<Rank> apart;  // ranks that behave as nobody else does: those that really compute
};

// The lanes of an algorithm on one group: way i of its plan is lane first_lane + i.
struct PlannedLanes {
  CollectiveKind kind = CollectiveKind::all_reduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  std::shared_ptr<const CollectivePlan> plan;
  std::int32_t first_lane = 0;
};

struct Folding {
  Arrangement arrangement;  // transfers first, then the edges of collectives that are simulated flow by flow
  Symmetry symmetry;
  // Lane of member 0's first RingHop, the others follow, hop by hop; -1: no flows.
  IdTable<GroupId, std::int32_t> first_edge;
  // Lane of member 0 to member 1, then to 2, ... then of member 1 to 0, to 2, ...; -1: no all_to_all flows.
  IdTable<GroupId, std::int32_t> first_pair;
  IdTable<GroupId, std::vector<PlannedLanes>> planned;  // algorithms that are neither

  std::vector<std::int32_t>
      first_host;  // by rank: its lane to its host, that from it follows; -1: it copies nothing

  // The lane between two different members, by place, of a group with pairs.
  std::int32_t pair_lane(GroupId group, std::size_t from, std::size_t to, std::size_t members) const {
    return first_pair[group] + static_cast<std::int32_t>(from * (members - 1) + to - (to > from ? 1 : 0));
  }
  const PlannedLanes& planned_for(GroupId group, CollectiveKind kind, CollectiveAlgorithm algorithm) const;
  bool runs(Rank rank) const { return symmetry.ranks.stand_in(rank) == rank; }
  std::int32_t lane_class(std::int32_t lane) const {
    return symmetry.lanes.class_of[static_cast<std::size_t>(lane)];
  }
};

CollectiveLevel level_of(const Fidelity& fidelity, const Group& group);

Folding fold(const Job& job, const Program& program, CostTable& costs, const FoldOptions& options);

// The links that stand for those a class of lanes crosses: `times` says how many of its lanes cross one of them, over
// the divisor that `parts` (by class of links) takes off its bandwidth.
struct Crossing {
  std::int32_t link_class = 0;
  std::int64_t times = 0;
};
struct Crossings {
  std::vector<std::vector<Crossing>> of_lane;  // by class of lanes
  std::vector<std::int64_t> parts;  // by class of links: the greatest common divisor of all its crossings
};
Crossings crossings(const Folding& folding);

}  // namespace motley
