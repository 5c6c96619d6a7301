#include "sim/fold/traffic.hpp"

#include <algorithm>
#include <cmath>

#include "models/base/index.hpp"

namespace motley {

double WholeCollective::seconds(double shared_s) const {
  const double beside_wire_s = whole_s - wire_s;
  return std::max(whole_s, std::min(beside_wire_s + shared_s, beside_wire_s + wire_s * crowding));
}

Traffic::Traffic(const Job& job, const Program& program, const Folding& folding, const Fabric& fabric,
                 CostTable& costs)
    : job_(job), program_(program), folding_(folding), fabric_(fabric), costs_(costs) {
  for (const GroupId group : folding.symmetry.groups.first) {
    const std::size_t members = program.groups[group].ranks.size();
    GroupLanes& lanes = lanes_.emplace_back();
    if (folding.first_edge[group] >= 0)
      lanes.edges = one_of_each(folding.first_edge[group], members * costs.ring(group).hops.size());
    lanes.pairs = one_of_each(folding.first_pair[group], members * (members - 1));
    for (const PlannedLanes& each : folding.planned[group])
      lanes.planned.push_back(one_of_each(each.first_lane, each.plan->ways.size()));
  }
}

// Returns one lane of each class among the `count` lanes from `first` on. `first` < 0: none.
std::vector<std::int32_t> Traffic::one_of_each(std::int32_t first, std::size_t count) const {
  std::vector<std::int32_t> lanes;
  std::set<std::int32_t> classes;
  for (std::size_t i = 0; first >= 0 && i < count; ++i) {
    const std::int32_t lane = first + static_cast<std::int32_t>(i);
    if (classes.insert(folding_.lane_class(lane)).second) lanes.push_back(lane);
  }
  return lanes;
}

CollectiveAlgorithm Traffic::algorithm_of(GroupId group, const CollectiveTask& task,
                                          std::int64_t bytes) const {
  return costs_.algorithm_of(task, group, job_.fidelity.algorithm, bytes);
}

// One flow for each edge (for each pair in an all_to_all) with all its wire bytes.
// Assumes: of several rings inside a mesh, only the flows of the first ring load the fabric.
WholeCollective Traffic::whole(GroupId group, const Collective& collective) const {
  const CollectiveKind kind = collective.kind;
  const CollectiveTask task = task_of(collective);
  const std::int64_t bytes = expected_bytes(collective);
  const CollectiveAlgorithm algorithm = algorithm_of(group, task, bytes);
  if (needs_steps(task, algorithm)) return planned_whole(group, task, algorithm, bytes);
  const bool pairwise = kind == CollectiveKind::all_to_all;
  const RingCost& cost = pairwise ? costs_.pairwise(group) : costs_.ring(group);
  WholeCollective result{{}, collective_s(kind, cost, bytes)};
  if (level(group) == CollectiveLevel::formula) return result;
  const double count = cost.rank_count;
  const double steps = collective_steps(kind, cost.rank_count);
  // Bytes that a member sends, over all its rings or to all other members of an all_to_all.
  const auto wire_bytes = static_cast<std::int64_t>(steps / count * static_cast<double>(bytes));
  const std::int64_t parts = pairwise ? cost.rank_count - 1 : cost.rings;
  const std::int64_t part_bytes = wire_bytes / parts;
  const GroupLanes& lanes = lanes_[class_of(group)];
  for (std::int32_t lane : pairwise ? lanes.pairs : lanes.edges)
    result.flows.push_back({lane, part_bytes * folding_.arrangement.lanes[at(lane)].parts});
  result.wire_s = static_cast<double>(part_bytes * parts) / cost.bandwidth;
  result.crowding = (pairwise ? folding_.pair_crowding : folding_.ring_crowding)[first_of_class(group)];
  return result;
}

// The same for an algorithm with a plan: one flow for each way of the plan that carries bytes.
WholeCollective Traffic::planned_whole(GroupId group, const CollectiveTask& task,
                                       CollectiveAlgorithm algorithm, std::int64_t payload) const {
  if (program_.groups[group].ranks.size() < 2) return {};
  const CollectiveCost& cost = costs_.collective(task, group, algorithm);
  const auto bytes = static_cast<double>(payload);
  WholeCollective result{{}, cost.seconds(payload)};
  if (level(group) == CollectiveLevel::formula) return result;
  const GroupId first = first_of_class(group);
  const PlannedLanes& lanes = folding_.planned_for(first, task, algorithm);
  for (std::int32_t lane : lanes_[class_of(group)].planned[at(&lanes - folding_.planned[first].data())])
    result.flows.push_back({lane, std::llround(lanes.plan->ways[at(lane - lanes.first_lane)].share * bytes)});
  result.wire_s = cost.least_s_per_byte * bytes;
  result.crowding = lanes.crowding;
  return result;
}

MemberExchanges Traffic::exchanges(GroupId group, Rank rank, const Collective& collective) const {
  const auto& ranks = program_.groups[group].ranks;
  if (ranks.size() < 2) return {};
  const std::int64_t bytes = expected_bytes(collective);
  const auto member = at(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const CollectiveTask task = task_of(collective);
  const CollectiveAlgorithm algorithm = algorithm_of(group, task, bytes);
  if (needs_steps(task, algorithm)) return planned(group, member, task, algorithm, bytes);
  if (collective.kind == CollectiveKind::all_to_all) return {0, {pairs(group, member, bytes)}};
  return {0, {ring_step(group, member, collective.kind, bytes)}};
}

void Traffic::add(const LaneMessage& message, bool sends, LaneEnds& ends, Messages& messages) const {
  if (ends.emplace(folding_.lane_class(message.lane), sends).second) messages.push_back(message);
}

// A ring uses the same two edges of each hop in every step.
// Assumes: the R chunks are padded to equal size, less than R bytes in all.
MemberExchange Traffic::ring_step(GroupId group, std::size_t member, CollectiveKind kind,
                                  std::int64_t bytes) const {
  const std::size_t count = program_.groups[group].ranks.size();
  const RingCost& cost = costs_.ring(group);
  const std::int64_t parts = static_cast<std::int64_t>(count) * cost.rings;
  const std::int64_t chunk = (bytes + parts - 1) / parts;
  MemberExchange step;
  step.times = collective_steps(kind, static_cast<int>(count));
  const double overhead_s = collective_overhead_s(kind, cost, bytes) / step.times;
  std::size_t hop_lanes = at(folding_.first_edge[group]);
  LaneEnds ends;
  for (const RingHop& hop : cost.hops) {
    for (const std::size_t sender : {member, hop.from(member, count)}) {
      const auto lane = static_cast<std::int32_t>(hop_lanes + sender);
      add({lane, hop.parts * chunk, fabric_.latency_s(lane, 0) + overhead_s}, sender == member, ends,
          step.messages);
    }
    hop_lanes += count;
  }
  return step;
}

// All messages of an all_to_all are posted together, as in its closed form.
MemberExchange Traffic::pairs(GroupId group, std::size_t member, std::int64_t bytes) const {
  const std::size_t count = program_.groups[group].ranks.size();
  const RingCost& cost = costs_.pairwise(group);
  const std::int64_t part = (bytes + cost.rank_count - 1) / cost.rank_count;
  const double latency_s = collective_steps(CollectiveKind::all_to_all, cost.rank_count) * cost.latency_s +
                           collective_overhead_s(CollectiveKind::all_to_all, cost, bytes);
  MemberExchange all;
  LaneEnds ends;
  for (std::size_t other = 0; other < count; ++other) {
    if (other == member) continue;
    add({folding_.pair_lane(group, member, other, count), part, latency_s}, true, ends, all.messages);
    add({folding_.pair_lane(group, other, member, count), part, latency_s}, false, ends, all.messages);
  }
  return all;
}

// A member posts all its messages of a round at once.
MemberExchanges Traffic::planned(GroupId group, std::size_t member, const CollectiveTask& task,
                                 CollectiveAlgorithm algorithm, std::int64_t bytes) const {
  const PlannedLanes& lanes = folding_.planned_for(group, task, algorithm);
  const CollectivePlan& plan = *lanes.plan;
  const CollectiveCost& cost = costs_.collective(task, group, algorithm);
  if (plan.pipelined > 0) return {0, {pipelined(member, lanes, cost, bytes)}};
  MemberExchanges result{plan.setup_s, {}};
  const double overhead_s = cost.overhead_s(bytes) / plan.rounds;
  LaneEnds ends;
  int round = -1;
  for (const CollectivePlan::Part& part : plan.of_member[member]) {
    if (part.round != round) {
      result.list.emplace_back();
      ends.clear();
    }
    round = part.round;
    const std::int32_t lane = lanes.first_lane + part.way;
    add({lane, plan.wire_bytes(part.chunks, bytes), fabric_.latency_s(lane, 0) + overhead_s}, part.sends,
        ends, result.list.back().messages);
  }
  return result;
}

// Rounds that follow each other segment by segment are one message over each way, after the latencies of all rounds.
MemberExchange Traffic::pipelined(std::size_t member, const PlannedLanes& lanes, const CollectiveCost& cost,
                                  std::int64_t bytes) const {
  const CollectivePlan& plan = *lanes.plan;
  const double latency_s = cost.latency_s + cost.overhead_s(bytes);
  MemberExchange all;
  LaneEnds ends;
  for (const CollectivePlan::Part& part : plan.of_member[member]) {
    const double wire_bytes = plan.ways[at(part.way)].share * static_cast<double>(bytes) / plan.pipelined;
    add({lanes.first_lane + part.way, std::llround(wire_bytes), latency_s}, part.sends, ends, all.messages);
  }
  return all;
}

}  // namespace motley
