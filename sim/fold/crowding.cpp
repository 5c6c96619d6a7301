#include "sim/fold/crowding.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "models/base/index.hpp"

namespace motley {
namespace {

// Seconds that links need for each byte of payload. It has room for every link of the cluster, and is used again.
class Loads {
 public:
  Loads(const Cluster& cluster, const Arrangement& arrangement)
      : cluster_(cluster), arrangement_(arrangement), on_link_(cluster.link_table.size()) {}
  void clear() {
    for (const std::int32_t link : used_) on_link_[at(link)] = 0;
    used_.clear();
  }
  void add(std::int32_t lane_index, double share) {
    const Lane& lane = arrangement_.lanes[at(lane_index)];
    for (std::uint32_t each = lane.first_link; each < lane.last_link; ++each) {
      const std::int32_t link = arrangement_.links[each];
      const LinkProperties& properties = cluster_.link_table[at(link)];
      double& load = on_link_[at(link)];
      if (load == 0) used_.push_back(link);
      load += share / (properties.bandwidth * properties.efficiency);
    }
  }
  const std::vector<std::int32_t>& used() const { return used_; }
  double operator[](std::int32_t link) const { return on_link_[at(link)]; }

 private:
  const Cluster& cluster_;
  const Arrangement& arrangement_;
  std::vector<double> on_link_;
  std::vector<std::int32_t> used_;
};

// Groups that run the same collectives at the same places of the same programs, and how they run them.
struct Family {
  GroupKind kind;
  std::size_t size;
  RankProgramId first_member;
  CollectiveTask task;
  CollectiveAlgorithm algorithm;
  auto operator<=>(const Family&) const = default;
};

// The lanes of one collective of a group, and the share of the payload that each carries.
struct SharedLanes {
  Family family;
  GroupId group;
  std::int32_t first = 0;
  std::vector<double> shares;
  double* crowding = nullptr;  // where the answer goes
};

class CrowdingFinder {
 public:
  CrowdingFinder(const Job& job, const Program& program, CostTable& costs, Folding& folding)
      : job_(job),
        program_(program),
        costs_(costs),
        folding_(folding),
        together_(job.cluster, folding.arrangement),
        alone_(job.cluster, folding.arrangement) {}

  void find() {
    folding_.ring_crowding = folding_.pair_crowding = IdTable<GroupId, double>(program_.groups.size(), 1.0);
    for (const GroupId group : program_.groups.ids()) list(group);
    std::stable_sort(lanes_.begin(), lanes_.end(),
                     [](const SharedLanes& a, const SharedLanes& b) { return a.family < b.family; });
    for (auto first = lanes_.begin(); first != lanes_.end();) {
      const auto last = std::find_if(first, lanes_.end(),
                                     [&](const SharedLanes& each) { return each.family != first->family; });
      find_in_family({first, last});
      first = last;
    }
  }

 private:
  void find_in_family(std::span<const SharedLanes> family) {
    if (family.size() == 1) return;
    together_.clear();
    for (const SharedLanes& lanes : family) add(lanes, together_);
    for (const SharedLanes& lanes : family)
      if (folding_.symmetry.groups.stand_in(lanes.group) == lanes.group) *lanes.crowding = crowding(lanes);
  }

  // The most loaded link of these lanes if the whole family is busy, over the same if they alone are.
  double crowding(const SharedLanes& lanes) {
    alone_.clear();
    add(lanes, alone_);
    double alone = 0, together = 0;
    for (const std::int32_t link : alone_.used()) {
      alone = std::max(alone, alone_[link]);
      together = std::max(together, together_[link]);
    }
    return alone > 0 ? together / alone : 1;
  }

  static void add(const SharedLanes& lanes, Loads& loads) {
    for (std::size_t i = 0; i < lanes.shares.size(); ++i)
      loads.add(lanes.first + static_cast<std::int32_t>(i), lanes.shares[i]);
  }

  // Appends the lanes of all collectives of a group that are simulated as flows.
  void list(GroupId index) {
    const Group& group = program_.groups[index];
    if (level_of(job_.fidelity, group) != CollectiveLevel::fluid) return;
    const std::size_t count = group.ranks.size();
    const auto append = [&](const CollectiveTask& task, CollectiveAlgorithm algorithm,
                            std::int32_t first_lane, double& crowding) -> std::vector<double>& {
      const RankProgramId first_member = program_.ranks[group.ranks.front()].rank_program;
      lanes_.push_back(
          {{group.kind, count, first_member, task, algorithm}, index, first_lane, {}, &crowding});
      return lanes_.back().shares;
    };
    if (folding_.first_edge[index] >= 0) {
      std::vector<double>& shares = append(CollectiveKind::all_reduce, CollectiveAlgorithm::ring,
                                           folding_.first_edge[index], folding_.ring_crowding[index]);
      for (const RingHop& hop : costs_.ring(index).hops) shares.insert(shares.end(), count, hop.parts);
    }
    if (folding_.first_pair[index] >= 0)
      append(CollectiveKind::all_to_all, CollectiveAlgorithm::flat, folding_.first_pair[index],
             folding_.pair_crowding[index])
          .assign(count * (count - 1), 1.0);
    for (PlannedLanes& planned : folding_.planned[index]) {
      std::vector<double>& shares =
          append(planned.task, planned.algorithm, planned.first_lane, planned.crowding);
      for (const CollectivePlan::Way& way : planned.plan->ways) shares.push_back(way.share);
    }
  }

  const Job& job_;
  const Program& program_;
  CostTable& costs_;
  Folding& folding_;
  Loads together_, alone_;
  std::vector<SharedLanes> lanes_;
};

}  // namespace

void find_crowding(const Job& job, const Program& program, CostTable& costs, Folding& folding) {
  CrowdingFinder(job, program, costs, folding).find();
}

}  // namespace motley
