#include "sim/fold/fold.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>

#include "models/base/refusal.hpp"
#include "models/cost/carrier.hpp"
#include "models/cost/network_cost.hpp"
#include "sim/fold/crowding.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "models/base/index.hpp"

namespace motley {
namespace {

template <class... Values>
std::uint64_t traits_of(Values... values) {
  const std::array<double, sizeof...(Values)> packed{static_cast<double>(values)...};
  return XXH3_64bits(packed.data(), sizeof packed);
}

using Algorithm = std::pair<CollectiveTask, CollectiveAlgorithm>;

std::uint64_t seeded(std::uint64_t value, std::uint64_t seed) {
  return XXH3_64bits_withSeed(&value, sizeof value, seed);
}

std::uint64_t traits_of_task(const Algorithm& algorithm, std::uint64_t seed) {
  const CollectiveTask& task = algorithm.first;
  const std::vector<std::int64_t>& parts = task.part_bytes;
  seed = XXH3_64bits_withSeed(parts.data(), parts.size() * sizeof(std::int64_t), seed);
  for (const int word : {static_cast<int>(task.kind), static_cast<int>(algorithm.second), task.root})
    seed = seeded(static_cast<std::uint64_t>(word), seed);
  return seed;
}

bool picks(CollectiveAlgorithm wanted) {
  return wanted == CollectiveAlgorithm::fastest || wanted == CollectiveAlgorithm::automatic;
}

// The kinds of collectives that each group runs, and the algorithms that they use.
IdTable<GroupId, std::set<Algorithm>> used_algorithms(const Job& job, const Program& program,
                                                      CostTable& costs) {
  struct Use {
    GroupSlot slot;
    CollectiveTask task;
    std::int64_t bytes;
    auto operator<=>(const Use&) const = default;
  };
  const CollectiveAlgorithm wanted = job.fidelity.algorithm;
  IdTable<RankProgramId, std::set<Use>> uses(program.rank_programs.size());
  for (RankProgramId id : program.rank_programs.ids())
    for (const Stream& stream : program.rank_programs[id].streams)
      for (const Instruction& each : stream.instructions)
        if (const auto* collective = each.as<Collective>())
          uses[id].insert({collective->slot, task_of(*collective), picks(wanted) ? expected_bytes(each) : 0});
  IdTable<GroupId, std::set<Algorithm>> used(program.groups.size());
  for (const RankEntry& entry : program.ranks)
    for (const Use& use : uses[entry.rank_program]) {
      const GroupId group = entry.groups[use.slot].value();
      used[group].emplace(use.task, costs.algorithm_of(use.task, group, wanted, use.bytes));
    }
  return used;
}

std::uint64_t traits_of_cost(const RingCost& ring) {
  const InSwitchCost in_switch = ring.in_switch.value_or(InSwitchCost{});
  return traits_of(ring.rank_count, ring.latency_s, ring.bandwidth, ring.kappa, ring.inside_node, ring.rings,
                   ring.hops.size(), in_switch.latency_s, in_switch.s_per_byte, in_switch.kappa);
}

std::uint64_t traits_of_cost(CostTable& costs, GroupId group, const Algorithm& used) {
  const auto& [task, algorithm] = used;
  if (!needs_steps(task, algorithm))
    return traits_of_cost(costs.pairwise(group));  // a ring's are there already
  const CollectiveCost& cost = costs.collective(task, group, algorithm);
  return traits_of(task.kind, algorithm, cost.latency_s, cost.s_per_byte, cost.kappa, cost.least_s_per_byte);
}

std::vector<std::uint64_t> link_traits(const Cluster& cluster) {
  std::vector<std::uint64_t> traits;
  traits.reserve(cluster.link_table.size());
  const LinkProperties* before = nullptr;  // most links are like the one before
  for (const LinkProperties& link : cluster.link_table) {
    const bool is_alike =
        before != nullptr && link.bandwidth == before->bandwidth && link.efficiency == before->efficiency;
    traits.push_back(is_alike ? traits.back() : traits_of(link.bandwidth, link.efficiency));
    before = &link;
  }
  return traits;
}

class FoldBuilder {
 public:
  FoldBuilder(const Job& job, const Program& program, CostTable& costs)
      : job_(job), program_(program), costs_(costs) {
    folding_.arrangement = arrange(program);
  }

  Folding build(const FoldOptions& options) {
    for (Lane& lane : folding_.arrangement.lanes) {
      lane.carrier = carrier_between(program_, job_.cluster, lane.from, lane.to);
      lay(lane, {});
    }
    used_ = used_algorithms(job_, program_, costs_);
    if (options.counted) options.counted(count_lanes());
    add_edges();
    add_hosts();
    if (options.fold) add_traits(options.apart);
    folding_.arrangement.link_traits = link_traits(job_.cluster);
    folding_.symmetry = options.fold ? find_symmetry(program_, folding_.arrangement)
                                     : no_symmetry(program_, folding_.arrangement);
    find_crowding(job_, program_, costs_, folding_);
    return std::move(folding_);
  }

 private:
  struct Terms {  // what makes lanes of a collective unlike, beyond their routes
    bool pays_latency = true;
    double rate = 0;           // rate of a ring's edge, or CollectivePlan::Way::share
    std::uint64_t rounds = 0;  // CollectivePlan::Way::rounds; 0: not planned, or all rounds are one flow
  };

  int chip(Rank rank) const { return program_.ranks[rank].chip; }

  // Gives the lane its links and traits.
  void lay(Lane& lane, const Terms& terms) {
    const Route way = route(job_.cluster, chip(lane.from), chip(lane.to), lane.carrier);
    const MessageCost transport =
        message_cost_over(job_.cluster, chip(lane.from), chip(lane.to), lane.carrier, way);
    lane.traits = traits_of(way.latency_s, way.bandwidth, way.rate, transport.efficiency, transport.kappa,
                            transport.message_kappa, transport.software_latency_s, terms.pays_latency,
                            lane.cap, lane.parts, lane.latency_s, terms.rate);
    if (terms.rounds != 0)
      lane.traits = XXH3_64bits_withSeed(&terms.rounds, sizeof terms.rounds, lane.traits);
    add_links(lane, way);
  }
  void add_links(Lane& lane, const Route& way) {
    auto& links = folding_.arrangement.links;
    lane.first_link = static_cast<std::uint32_t>(links.size());
    links.insert(links.end(), way.links.begin(), way.links.end());
    lane.last_link = static_cast<std::uint32_t>(links.size());
  }

  // The rate of each edge of a ring when all its edges are busy: edges of one ring may share a link.
  std::vector<double> ring_rates(const Group& group, const Carrier& carrier) const {
    std::unordered_map<int, int> edges_on;
    std::vector<Route> ways;
    const auto member = [&](std::size_t i) { return chip(group.ranks[i % group.ranks.size()]); };
    for (std::size_t i = 0; i < group.ranks.size(); ++i) {
      ways.push_back(route(job_.cluster, member(i), member(i + 1), carrier));
      for (int link : ways.back().links) ++edges_on[link];
    }
    std::vector<double> rates;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      int sharing = 1;
      for (int link : ways[i].links) sharing = std::max(sharing, edges_on[link]);
      const MessageCost cost = message_cost_over(job_.cluster, member(i), member(i + 1), carrier, ways[i]);
      rates.push_back(ways[i].bandwidth * cost.efficiency / sharing);
    }
    return rates;
  }

  void add_ring(GroupId index, CollectiveLevel level) {
    const Group& group = program_.groups[index];
    const RingCost& ring = costs_.ring(index);
    const Carrier carrier = choose_carrier(program_, job_.cluster, group).carrier;
    const std::vector<double> rates =
        ring.over_nodes() ? std::vector<double>(group.ranks.size()) : ring_rates(group, carrier);
    const bool alike = std::all_of(rates.begin(), rates.end(), [&](double rate) { return rate == rates[0]; });
    const bool fluid = level == CollectiveLevel::fluid;
    folding_.first_edge[index] = static_cast<std::int32_t>(folding_.arrangement.lanes.size());
    for (const RingHop& hop : ring.hops)
      for (std::size_t i = 0; i < group.ranks.size(); ++i) {
        Lane edge;
        edge.from = group.ranks[i];
        edge.to = group.ranks[hop.to(i, group.ranks.size())];
        edge.group = index;
        edge.by_ranks = !fluid;
        if (fluid && !alike) edge.cap = ring.bandwidth;
        if (fluid && ring.over_nodes()) edge.cap = ring.bandwidth * hop.parts / ring.rings;
        if (ring.over_nodes()) edge.latency_s = ring.latency_s;
        edge.parts = hop.parts;
        edge.carrier = carrier;
        lay(edge, Terms{!fluid, rates[i]});
        folding_.arrangement.lanes.push_back(edge);
      }
  }

  // Adds a lane for each ordered pair of members.
  void add_pairs(GroupId index, CollectiveLevel level) {
    const auto& ranks = program_.groups[index].ranks;
    const Carrier carrier = choose_carrier(program_, job_.cluster, program_.groups[index]).carrier;
    folding_.first_pair[index] = static_cast<std::int32_t>(folding_.arrangement.lanes.size());
    for (std::size_t i = 0; i < ranks.size(); ++i)
      for (std::size_t j = 0; j < ranks.size(); ++j) {
        if (i == j) continue;
        Lane pair;
        pair.from = ranks[i];
        pair.to = ranks[j];
        pair.group = index;
        pair.carrier = carrier;
        pair.by_ranks = level == CollectiveLevel::expanded;
        lay(pair, Terms{pair.by_ranks});
        folding_.arrangement.lanes.push_back(pair);
      }
  }

  std::int64_t count_lanes() {
    auto lanes = static_cast<std::int64_t>(folding_.arrangement.lanes.size());
    for (GroupId index : program_.groups.ids()) {
      const auto members = static_cast<std::int64_t>(program_.groups[index].ranks.size());
      if (members < 2 || level_of(job_.fidelity, program_.groups[index]) == CollectiveLevel::formula)
        continue;
      bool rings = false;
      for (const auto& [task, algorithm] : used_[index]) {
        if (needs_steps(task, algorithm)) continue;
        if (algorithm == CollectiveAlgorithm::flat) lanes += members * (members - 1);
        rings = rings || algorithm == CollectiveAlgorithm::ring;
      }
      if (rings) lanes += members * static_cast<std::int64_t>(costs_.ring(index).hops.size());
    }
    return lanes;
  }

  void add_edges() {
    folding_.first_edge.resize(program_.groups.size(), -1);
    folding_.first_pair.resize(program_.groups.size(), -1);
    folding_.planned.resize(program_.groups.size());
    for (GroupId index : program_.groups.ids()) {
      const CollectiveLevel level = level_of(job_.fidelity, program_.groups[index]);
      if (program_.groups[index].ranks.size() < 2 || level == CollectiveLevel::formula) continue;
      for (const Algorithm& used : used_[index]) {
        if (needs_steps(used.first, used.second))
          add_plan(index, level, used);
        else if (used.second == CollectiveAlgorithm::flat)
          add_pairs(index, level);
        else if (folding_.first_edge[index] < 0)
          add_ring(index, level);
      }
    }
  }

  // Adds a lane to the host and a lane from the host for every rank that copies.
  void add_hosts() {
    IdTable<RankProgramId, char> copies;
    for (const RankProgram& rank_program : program_.rank_programs)
      copies.add(
          std::any_of(rank_program.streams.begin(), rank_program.streams.end(), [](const Stream& stream) {
            return stream.kind == StreamKind::to_host || stream.kind == StreamKind::from_host;
          }));
    folding_.first_host = IdTable<Rank, std::int32_t>(program_.ranks.size(), -1);
    for (Rank rank : program_.ranks.ids()) {
      if (!copies[program_.ranks[rank].rank_program]) continue;
      folding_.first_host[rank] = static_cast<std::int32_t>(folding_.arrangement.lanes.size());
      for (const std::int32_t way : {1, 2}) {
        Lane lane;
        lane.from = lane.to = rank;
        lane.host = way;
        const Route taken = host_route(job_.cluster, chip(rank), way == 1);
        lane.traits = traits_of(taken.latency_s, taken.bandwidth, taken.rate, way, 0.5);
        add_links(lane, taken);
        folding_.arrangement.lanes.push_back(lane);
      }
    }
  }

  const std::shared_ptr<const CollectivePlan>& plan_of(const Algorithm& algorithm, const GroupShape& shape) {
    auto& plan = plans_[{algorithm, shape}];
    if (plan == nullptr)
      plan =
          std::make_shared<const CollectivePlan>(make_plan(expand(algorithm.first, algorithm.second, shape)));
    return plan;
  }

  // At level fluid each flow is capped at the rate at which all flows end together, when the most loaded link is done.
  void add_plan(GroupId index, CollectiveLevel level, const Algorithm& algorithm) {
    const Group& group = program_.groups[index];
    const bool fluid = level == CollectiveLevel::fluid;
    const Carrier carrier = choose_carrier(program_, job_.cluster, group).carrier;
    PlannedLanes planned{algorithm.first, algorithm.second,
                         plan_of(algorithm, shape_of(program_, job_.cluster, group)),
                         static_cast<std::int32_t>(folding_.arrangement.lanes.size())};
    const double whole =
        fluid ? costs_.collective(algorithm.first, index, algorithm.second).least_s_per_byte : 0;
    for (const CollectivePlan::Way& way : planned.plan->ways) {
      Lane lane;
      lane.from = group.ranks[at(way.from)];
      lane.to = group.ranks[at(way.to)];
      lane.group = index;
      lane.by_ranks = !fluid;
      lane.carrier = carrier;
      lane.cap = whole > 0 ? way.share / whole : 0;
      lay(lane, {!fluid, way.share, fluid ? 0 : way.rounds});
      lane.traits = traits_of_task(algorithm, lane.traits);
      folding_.arrangement.lanes.push_back(lane);
    }
    folding_.planned[index].push_back(std::move(planned));
  }

  // Adds the traits of groups and ranks. Ranks are alike whose chips are in one group of the cluster and whose
  // collective groups cost the same, because that cost may enter the price of their computes.
  void add_traits(const std::vector<Rank>& apart) {
    IdTable<GroupId, std::uint64_t> rings;
    for (GroupId group : program_.groups.ids()) {
      rings.add(traits_of_cost(costs_.ring(group)));
      std::uint64_t& traits = folding_.arrangement.group_traits[group];
      traits = XXH3_64bits_withSeed(&rings[group], sizeof rings[group], traits);
      for (const Algorithm& used : used_[group]) {
        if (used.second == CollectiveAlgorithm::ring && !needs_steps(used.first, used.second)) continue;
        const std::uint64_t cost = traits_of_cost(costs_, group, used);
        traits = XXH3_64bits_withSeed(&cost, sizeof cost, traits);
      }
    }
    std::vector<std::uint64_t> words;
    for (Rank rank : program_.ranks.ids()) {
      const RankEntry& entry = program_.ranks[rank];
      words = {static_cast<std::uint64_t>(job_.cluster.chip_group[at(entry.chip)])};
      for (std::optional<GroupId> group : entry.groups) words.push_back(group ? rings[*group] : 0);
      if (!job_.cluster.chip_speed.empty()) add_speeds(entry, words);
      std::uint64_t& traits = folding_.arrangement.rank_traits[rank];
      traits = XXH3_64bits_withSeed(words.data(), words.size() * sizeof words[0], traits);
    }
    for (Rank rank : apart)
      folding_.arrangement.rank_traits[rank] =
          traits_of(rank.value(), folding_.arrangement.rank_traits.size());
  }

  // The speeds that price the rank's computes.
  void add_speeds(const RankEntry& entry, std::vector<std::uint64_t>& words) {
    words.push_back(traits_of(job_.cluster.speed_of(entry.chip)));
    if (entry.groups.has(kTensorGroup) && entry.groups[kTensorGroup])
      words.push_back(traits_of(costs_.slowest_of(*entry.groups[kTensorGroup])));
  }

  const Job& job_;
  const Program& program_;
  CostTable& costs_;
  Folding folding_;
  IdTable<GroupId, std::set<Algorithm>> used_;
  std::map<std::pair<Algorithm, GroupShape>, std::shared_ptr<const CollectivePlan>> plans_;
};

}  // namespace

const PlannedLanes& Folding::planned_for(GroupId group, const CollectiveTask& task,
                                         CollectiveAlgorithm algorithm) const {
  const auto& all = planned[group];
  const auto lanes = std::find_if(all.begin(), all.end(), [&](const PlannedLanes& each) {
    return each.task == task && each.algorithm == algorithm;
  });
  MOTLEY_CHECK(lanes != all.end());
  return *lanes;
}

CollectiveLevel level_of(const Fidelity& fidelity, const Group& group) {
  return group.kind == GroupKind::tensor ? fidelity.tensor_parallel : fidelity.data_parallel;
}

Folding fold(const Job& job, const Program& program, CostTable& costs, const FoldOptions& options) {
  return FoldBuilder(job, program, costs).build(options);
}

Crossings crossings(const Folding& folding) {
  const Arrangement& arrangement = folding.arrangement;
  const Partition<std::int32_t>& links = folding.symmetry.links;
  std::vector<std::pair<std::int32_t, std::int32_t>> seen;  // class of lanes, class of links
  for (std::size_t i = 0; i < arrangement.lanes.size(); ++i)
    for (std::uint32_t each = arrangement.lanes[i].first_link; each < arrangement.lanes[i].last_link;
         ++each) {
      const std::int32_t link = arrangement.links[each];
      if (links.stand_in(link) == link)
        seen.emplace_back(folding.symmetry.lanes.class_of[i], links.class_of[at(link)]);
    }
  std::sort(seen.begin(), seen.end());
  Crossings result{std::vector<std::vector<Crossing>>(folding.symmetry.lanes.first.size()),
                   std::vector<std::int64_t>(links.first.size())};
  for (std::size_t i = 0; i < seen.size();) {
    const std::size_t first = i;
    while (i < seen.size() && seen[i] == seen[first]) ++i;
    const auto times = static_cast<std::int64_t>(i - first);
    result.of_lane[at(seen[first].first)].push_back({seen[first].second, times});
    std::int64_t& parts = result.parts[at(seen[first].second)];
    parts = std::gcd(parts, times);
  }
  return result;
}

}  // namespace motley
