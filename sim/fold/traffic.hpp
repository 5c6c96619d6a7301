// What a collective puts on the lanes of its group: all its flows at once where it is simulated as a whole, or each
// member's messages, exchange after exchange, where it is expanded. It lets no time pass, and shares no link: see
// sim/world/sim_world.hpp and sim/recurrence/recurrence.hpp, which do. Read next: sim/fold/fold.hpp,
// models/cost/collective_cost.hpp.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "models/cost/compute_cost.hpp"
#include "models/scenario/job.hpp"
#include "sim/fold/fabric.hpp"
#include "sim/fold/fold.hpp"

namespace motley {

struct LaneMessage {
  std::int32_t lane = 0;
  std::int64_t bytes = 0;
  double latency_s = 0;  // seconds after it is posted in which no byte moves
};

// A collective at level formula or fluid, from when its last member has come.
struct WholeCollective {
  std::vector<LaneMessage> flows;  // one for each class of its lanes; none at level formula
  // Seconds on an idle fabric: of all of it, and of its slowest flow.
  double whole_s = 0, wire_s = 0;
  double crowding = 1;  // see Folding::ring_crowding
  // Seconds of all of it if its flows take `shared_s`: on an idle fabric its closed form, where links are shared more.
  // Assumes: where unlike collectives share links, the bytes of one move while the other waits for its latencies. Those
  // of groups that do the same at the same time wait for their latencies together, and then share the links.
  double seconds(double shared_s) const;
};

// Messages that a member posts together, and has ended when it goes on; so many times.
struct MemberExchange {
  std::vector<LaneMessage> messages;  // sent and received
  int times = 1;
};
// What a member does in a collective at level expanded.
struct MemberExchanges {
  double setup_s = 0;  // before the first exchange
  std::vector<MemberExchange> list;
};

class Traffic {
 public:
  // Keeps references to all arguments, which must outlive it.
  Traffic(const Job& job, const Program& program, const Folding& folding, const Fabric& fabric,
          CostTable& costs);

  CollectiveLevel level(GroupId group) const { return level_of(job_.fidelity, program_.groups[group]); }
  // At level formula or fluid.
  WholeCollective whole(GroupId group, const Collective& collective) const;
  // At level expanded.
  MemberExchanges exchanges(GroupId group, Rank rank, const Collective& collective) const;

 private:
  // One lane of each class among the lanes of a group's ring, of its pairwise exchange, and of each entry of
  // Folding::planned.
  struct GroupLanes {
    std::vector<std::int32_t> edges, pairs;
    std::vector<std::vector<std::int32_t>> planned;
  };
  using Messages = std::vector<LaneMessage>;
  // One lane of a class is enough: the others begin and end with it.
  using LaneEnds = std::set<std::pair<std::int32_t, bool>>;  // class of lanes, whether the member sends

  std::vector<std::int32_t> one_of_each(std::int32_t first, std::size_t count) const;
  std::size_t class_of(GroupId group) const { return at(folding_.symmetry.groups.class_of[at(group)]); }
  GroupId first_of_class(GroupId group) const { return folding_.symmetry.groups.first[class_of(group)]; }
  CollectiveAlgorithm algorithm_of(GroupId group, const CollectiveTask& task, std::int64_t bytes) const;
  WholeCollective planned_whole(GroupId group, const CollectiveTask& task, CollectiveAlgorithm algorithm,
                                std::int64_t payload) const;
  MemberExchange ring_step(GroupId group, std::size_t member, CollectiveKind kind, std::int64_t bytes) const;
  MemberExchange pairs(GroupId group, std::size_t member, std::int64_t bytes) const;
  MemberExchanges planned(GroupId group, std::size_t member, const CollectiveTask& task,
                          CollectiveAlgorithm algorithm, std::int64_t bytes) const;
  MemberExchange pipelined(std::size_t member, const PlannedLanes& lanes, const CollectiveCost& cost,
                           std::int64_t bytes) const;
  void add(const LaneMessage& message, bool sends, LaneEnds& ends, Messages& messages) const;

  const Job& job_;
  const Program& program_;
  const Folding& folding_;
  const Fabric& fabric_;
  CostTable& costs_;
  std::vector<GroupLanes> lanes_;  // by class of groups
};

// A fold with what follows from it.
struct FoldedFabric {
  // The other arguments must outlive it.
  FoldedFabric(const Job& job, const Program& program, CostTable& costs, Folding its_folding)
      : folding(std::move(its_folding)),
        fabric(program, job.cluster, folding),
        traffic(job, program, folding, fabric, costs) {}
  FoldedFabric(const FoldedFabric&) = delete;
  FoldedFabric& operator=(const FoldedFabric&) = delete;

  const Folding folding;
  const Fabric fabric;
  const Traffic traffic;
};

}  // namespace motley
