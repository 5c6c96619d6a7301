// Folding: what a Program may put on the fabric, who must behave alike there, and what one of each class needs so that
// it stands for all. A lane of a class crosses a link as often as its whole class does, and links that everyone shares
// alike keep their part: folded and unfolded runs give the same times. Whatever is unlike is in a class of its own, so
// nothing is ever refused. It decides nothing about time: see sim/sim_world.cpp. Read next: models/symmetry.hpp,
// sim/fabric.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/compile.hpp"
#include "models/compute_cost.hpp"
#include "models/symmetry.hpp"
#include "sim/collective_plan.hpp"

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
  std::vector<std::int32_t>
      first_edge;  // by group: lane of member 0's first RingHop, the others follow, hop by hop; -1: no flows
  // By group: lane of member 0 to member 1, then to 2, ... then of member 1 to 0, to 2, ...; -1: no all_to_all flows.
  std::vector<std::int32_t> first_pair;
  std::vector<std::vector<PlannedLanes>> planned;  // by group: of algorithms that are neither

  std::vector<std::int32_t>
      first_host;  // by rank: its lane to its host, that from it follows; -1: it copies nothing

  // Of a group with pairs, between two different members, by place.
  std::int32_t pair_lane(int group, std::size_t from, std::size_t to, std::size_t members) const {
    return first_pair[static_cast<std::size_t>(group)] +
           static_cast<std::int32_t>(from * (members - 1) + to - (to > from ? 1 : 0));
  }
  const PlannedLanes& planned_for(int group, CollectiveKind kind, CollectiveAlgorithm algorithm) const;
  bool runs(Rank rank) const { return symmetry.ranks.stand_in(rank) == rank; }
  std::int32_t lane_class(std::int32_t lane) const {
    return symmetry.lanes.of[static_cast<std::size_t>(lane)];
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
