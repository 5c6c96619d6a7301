// Folding: the lanes that a Program uses on the fabric, the classes of ranks, lanes and links that must behave alike,
// and what one of each class needs to stand for all. The lane that stands for a class crosses a link as often as the
// whole class does, so folded and unfolded runs give the same times. Whatever differs is in a class of its own, so
// nothing is ever refused. Folding decides nothing about time: see sim/world/sim_world.cpp. Read next:
// models/world/symmetry.hpp, sim/fold/fabric.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "models/cost/compute_cost.hpp"
#include "models/scenario/job.hpp"
#include "models/world/symmetry.hpp"
#include "sim/fold/collective_plan.hpp"

namespace motley {

// What the fold must know about a simulation beyond its Job.
struct FoldOptions {
  bool fold = false;        // false: every rank, lane and link stands for itself
  std::vector<Rank> apart;  // ranks in a class of their own: those that really compute
  // Called when the lanes of transfers, rings and pairwise exchanges are counted, and before those of collectives are
  // made. It may throw.
  std::function<void(std::int64_t lanes)> counted = {};
};

// The lanes of one algorithm on one group: way i of its plan is lane first_lane + i.
struct PlannedLanes {
  CollectiveTask task;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  std::shared_ptr<const CollectivePlan> plan;
  std::int32_t first_lane = 0;
  double crowding = 1;  // see Folding::ring_crowding
};

struct Folding {
  Arrangement arrangement;  // lanes of transfers, of collectives simulated flow by flow, of hosts
  Symmetry symmetry;
  // Lane of member 0's first RingHop; those of the other members follow, then the next hop. -1: the group has no flows
  // along a ring.
  IdTable<GroupId, std::int32_t> first_edge;
  // Lane from member 0 to member 1; those to members 2, 3, ... follow, then those from member 1 to 0, 2, ... -1: the
  // group has no flows of a pairwise exchange.
  IdTable<GroupId, std::int32_t> first_pair;
  IdTable<GroupId, std::vector<PlannedLanes>> planned;  // lanes of all that needs_steps()
  // Load of the most loaded link of the group's ring, or of its pairwise exchange, if all groups that run the same
  // collectives at the same places of the same programs do so together, over its load if this group does alone. Held
  // for the groups that stand for their class.
  IdTable<GroupId, double> ring_crowding, pair_crowding;

  // Indexed by rank: the rank's lane to its host; the lane from its host is the next. -1: the rank copies nothing.
  IdTable<Rank, std::int32_t> first_host;

  // The lane from one member to another, given by place, in a group where first_pair is not -1.
  std::int32_t pair_lane(GroupId group, std::size_t from, std::size_t to, std::size_t members) const {
    return first_pair[group] + static_cast<std::int32_t>(from * (members - 1) + to - (to > from ? 1 : 0));
  }
  const PlannedLanes& planned_for(GroupId group, const CollectiveTask& task,
                                  CollectiveAlgorithm algorithm) const;
  bool runs(Rank rank) const { return symmetry.ranks.stand_in(rank) == rank; }
  std::int32_t lane_class(std::int32_t lane) const {
    return symmetry.lanes.class_of[static_cast<std::size_t>(lane)];
  }
};

CollectiveLevel level_of(const Fidelity& fidelity, const Group& group);

Folding fold(const Job& job, const Program& program, CostTable& costs, const FoldOptions& options);

// A class of links that a class of lanes crosses. `times`: how many lanes of that class cross the one link that stands
// for the class of links. Fabric divides both `times` and the bandwidth of that link by Crossings::parts.
struct Crossing {
  std::int32_t link_class = 0;
  std::int64_t times = 0;
};
struct Crossings {
  std::vector<std::vector<Crossing>> of_lane;  // indexed by class of lanes
  std::vector<std::int64_t> parts;  // indexed by class of links: the greatest common divisor of `times`
};
Crossings crossings(const Folding& folding);

}  // namespace motley
