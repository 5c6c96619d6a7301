#include "sim/fabric/repeated_draw.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/cluster/switches.hpp"
#include "models/cost/network_cost.hpp"
#include "sim/fabric/fold.hpp"

namespace motley {
namespace {

// The same job on a cluster where every flow takes all spines, with a lane for each edge between two nodes.
Job unhashed(const Job& job, const Program& program) {
  Job twin = job;
  for (Network& network : twin.cluster.networks) network.routing = Routing::adaptive;
  build_topology(twin.cluster);
  twin.fidelity.data_parallel = CollectiveLevel::fluid;
  const bool over_nodes = std::any_of(program.groups.begin(), program.groups.end(), [&](const Group& group) {
    const auto node = [&](Rank rank) { return job.cluster.chip_node[at(program.ranks[rank].chip)]; };
    return group.kind == GroupKind::tensor && node(group.ranks.front()) != node(group.ranks.back());
  });
  twin.fidelity.tensor_parallel = over_nodes ? CollectiveLevel::fluid : CollectiveLevel::formula;
  return twin;
}

constexpr std::int32_t kTransfers = -1;

// A lane from leaf to leaf.
struct LeafFlow {
  int leaf = 0, to = 0, way = 0;
  Rank source, target;
  std::int32_t lane_class = 0;  // without hashing
  double share = 1;
  std::int32_t set = kTransfers;  // flows of collectives that choose their model together
  auto key() const { return std::tie(leaf, set, to, source, target); }
};

// Disjoint sets of the numbers below `count`.
class Sets {
 public:
  explicit Sets(std::size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0); }
  void join(std::int32_t a, std::int32_t b) { parent_[at(root(a))] = root(b); }
  std::int32_t root(std::int32_t number) {
    while (parent_[at(number)] != number) number = parent_[at(number)] = parent_[at(parent_[at(number)])];
    return number;
  }

 private:
  std::vector<std::int32_t> parent_;
};

class DrawRepeater {
 public:
  DrawRepeater(const Job& job, const Program& program)
      : job_(job), program_(program), twin_(unhashed(job, program)) {
    CostTable costs(program, twin_.cluster);
    folding_ = fold(twin_, program, costs, {true, {}});
  }

  std::optional<Cluster> repeat() {
    std::optional<Cluster> repeated;
    for (std::size_t i = 0; i < twin_.cluster.network_layout.size(); ++i) {
      if (!hashes_flows(job_.cluster.network_layout[i])) continue;
      find_classes(i);
      if (classes_.size() == at(layout().leaves)) continue;
      find_flows();
      if (!repeated) repeated = job_.cluster;
      repeated->network_layout[i].models = std::make_shared<const FlowModels>(choose_models());
    }
    return repeated;
  }

 private:
  const NetworkLayout& layout() const { return job_.cluster.network_layout[network_]; }
  std::span<const LeafFlow> flows(int leaf) const {
    return std::span(flows_).subspan(first_flow_[at(leaf)],
                                     first_flow_[at(leaf) + 1] - first_flow_[at(leaf)]);
  }
  // The part of flows(leaf) that is of one set.
  std::span<const LeafFlow> flows(int leaf, std::int32_t set) const {
    const std::span<const LeafFlow> all = flows(leaf);
    const auto first =
        std::partition_point(all.begin(), all.end(), [&](const LeafFlow& flow) { return flow.set < set; });
    const auto last =
        std::partition_point(first, all.end(), [&](const LeafFlow& flow) { return flow.set == set; });
    return {first, last};
  }

  // Leaves are alike if their links are: those of one class have the same sorts of flows.
  void find_classes(std::size_t network) {
    network_ = network;
    const NetworkLayout& alike = twin_.cluster.network_layout[network];
    const std::vector<std::int32_t>& link_class = folding_.symmetry.links.class_of;
    std::map<std::pair<int, int>, int> number;
    class_of_leaf_.clear();
    classes_.clear();
    for (int leaf = 0; leaf < alike.leaves; ++leaf) {
      const std::size_t up = at(alike.first_link + 2 * leaf * alike.ways);
      const auto [known, is_new] =
          number.try_emplace({link_class[up], link_class[up + 1]}, static_cast<int>(classes_.size()));
      if (is_new) classes_.emplace_back();
      class_of_leaf_.push_back(known->second);
      classes_[at(known->second)].push_back(leaf);
    }
  }

  void find_flows() {
    const Arrangement& arrangement = folding_.arrangement;
    const NetworkLayout& alike = twin_.cluster.network_layout[network_];
    flows_.clear();
    for (std::size_t index = 0; index < arrangement.lanes.size(); ++index) {
      const Lane& lane = arrangement.lanes[index];
      LeafFlow flow;
      flow.leaf = -1;
      for (std::uint32_t i = lane.first_link; i < lane.last_link; ++i)
        if (const auto link = spine_link(alike, arrangement.links[i]))
          (link->up ? flow.leaf : flow.to) = link->leaf;
      if (flow.leaf < 0) continue;
      const auto chip = [&](Rank rank) { return program_.ranks[rank].chip; };
      for (const int id : route(job_.cluster, chip(lane.from), chip(lane.to), lane.carrier).links)
        if (const auto link = spine_link(layout(), id)) flow.way = link->way;
      flow.source = lane.from;
      flow.target = lane.to;
      flow.lane_class = folding_.lane_class(static_cast<std::int32_t>(index));
      flow.share = lane.parts;
      if (lane.group) flow.set = flow.lane_class;
      flows_.push_back(flow);
    }
    join_sets();
    std::stable_sort(flows_.begin(), flows_.end(),
                     [](const LeafFlow& a, const LeafFlow& b) { return a.key() < b.key(); });
    // Two groups of the same members run at different times, so that an edge of both counts once.
    const auto again = [](const LeafFlow& a, const LeafFlow& b) {
      return a.set != kTransfers && a.key() == b.key();
    };
    flows_.erase(std::unique(flows_.begin(), flows_.end(), again), flows_.end());
    first_flow_.assign(at(layout().leaves) + 1, 0);
    for (const LeafFlow& flow : flows_) ++first_flow_[at(flow.leaf) + 1];
    std::partial_sum(first_flow_.begin(), first_flow_.end(), first_flow_.begin());
  }

  // Flows between the same two leaves have one model.
  void join_sets() {
    Sets sets(folding_.symmetry.lanes.first.size());
    std::unordered_map<std::int64_t, std::int32_t> between;
    for (const LeafFlow& flow : flows_)
      if (flow.set != kTransfers)
        sets.join(flow.set, between.try_emplace(key_of(flow.leaf, flow.to), flow.set).first->second);
    for (LeafFlow& flow : flows_)
      if (flow.set != kTransfers) flow.set = sets.root(flow.set);
  }
  std::int64_t key_of(int from, int to) const { return std::int64_t{from} * layout().leaves + to; }

  FlowModels choose_models() {
    FlowModels models;
    models.others.resize(at(layout().leaves));
    const std::vector<int> crossed = worst_transfers();
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const std::map<std::int32_t, int> slowest = slowest_for_collectives(classes_[i]);
      const int transfers = crossed[i] < 0 ? classes_[i].front() : crossed[i];
      for (const int leaf : classes_[i])
        models.others[at(leaf)] = slowest.empty() ? transfers : slowest.begin()->second;
      for (const auto& [set, model] : slowest) add(models, classes_[i], model, set);
      add(models, classes_[i], transfers, kTransfers);
    }
    return models;
  }

  void add(FlowModels& models, const std::vector<int>& leaves, int model, std::int32_t set) const {
    const std::vector<int> goals = goals_of(model, set);
    for (const int leaf : leaves) {
      const std::vector<int> own = goals_of(leaf, set);
      for (std::size_t i = 0; i < std::min(own.size(), goals.size()); ++i)
        models.between.try_emplace(key_of(leaf, own[i]), FlowModels::Leaves{model, goals[i]});
    }
  }

  // The leaves to which a leaf's flows go, those of one class in the order of their distance.
  std::vector<int> goals_of(int leaf, std::int32_t set) const {
    std::vector<std::tuple<int, int, int>> goals;
    for (const LeafFlow& flow : flows(leaf, set))
      if (goals.empty() || std::get<2>(goals.back()) != flow.to)
        goals.emplace_back(class_of_leaf_[at(flow.to)], (flow.to - leaf + layout().leaves) % layout().leaves,
                           flow.to);
    std::sort(goals.begin(), goals.end());
    std::vector<int> in_order;
    for (const auto& goal : goals) in_order.push_back(std::get<2>(goal));
    return in_order;
  }

  // By set of flows. Collectives wait for the slowest of all their flows, so the leaf is the one whose busiest link is
  // the busiest of all by what they send; of those with equally much, the middle one by how unevenly it is spread.
  std::map<std::int32_t, int> slowest_for_collectives(const std::vector<int>& leaves) const {
    std::map<std::int32_t, std::vector<std::tuple<double, double, int>>> candidates;
    std::vector<double> load(at(layout().ways));
    for (const int leaf : leaves) {
      const std::span<const LeafFlow> all = flows(leaf);
      for (auto first = all.begin(); first != all.end();) {
        const std::span<const LeafFlow> some = flows(leaf, first->set);
        first += some.end() - some.begin();
        if (some[0].set == kTransfers) continue;
        std::fill(load.begin(), load.end(), 0.0);
        for (const LeafFlow& flow : some) load[at(flow.way)] += flow.share;
        candidates[some[0].set].emplace_back(*std::max_element(load.begin(), load.end()),
                                             std::inner_product(load.begin(), load.end(), load.begin(), 0.0),
                                             leaf);
      }
    }
    std::map<std::int32_t, int> slowest;
    for (auto& [set, all] : candidates) {
      std::sort(all.begin(), all.end());
      const double most = std::get<0>(all.back());
      const auto first =
          std::find_if(all.begin(), all.end(), [&](const auto& each) { return std::get<0>(each) == most; });
      slowest[set] = std::get<2>(*(first + (all.end() - first) / 2));
    }
    return slowest;
  }

  // By class: a leaf that the chain of transfers crosses which waits longest for its links. -1: no transfers.
  // Every step waits for the slowest chain, but no chain for the slowest links of others.
  std::vector<int> worst_transfers() {
    Sets chains(program_.ranks.size());
    for (const Lane& lane : folding_.arrangement.lanes)
      if (lane.out) chains.join(lane.from.value(), lane.to.value());
    const auto key = [&](int leaf, const LeafFlow& flow, bool up) {
      return ((std::int64_t{leaf} * layout().ways + flow.way) * 2 + (up ? 1 : 0)) *
                 static_cast<std::int64_t>(folding_.symmetry.lanes.first.size()) +
             flow.lane_class;
    };
    std::unordered_map<std::int64_t, int> sharing;
    for (const LeafFlow& flow : flows_)
      if (flow.set == kTransfers) {
        ++sharing[key(flow.leaf, flow, true)];
        ++sharing[key(flow.to, flow, false)];
      }
    std::unordered_map<std::int32_t, std::pair<double, std::map<int, double>>> waits;  // in all, by leaf
    for (const LeafFlow& flow : flows_) {
      if (flow.set != kTransfers) continue;
      auto& [all, by_leaf] = waits[chains.root(flow.source.value())];
      const double times =
          std::max(sharing.at(key(flow.leaf, flow, true)), sharing.at(key(flow.to, flow, false)));
      all += times;
      by_leaf[flow.leaf] += times;
    }
    std::vector<std::pair<double, std::int32_t>> in_turn;
    for (const auto& [chain, wait] : waits) in_turn.emplace_back(-wait.first, chain);
    std::sort(in_turn.begin(), in_turn.end());
    std::vector<int> crossed(classes_.size(), -1);
    std::size_t missing = crossed.size();
    for (auto turn = in_turn.begin(); turn != in_turn.end() && missing > 0; ++turn) {
      std::map<int, std::pair<double, int>> best;  // by class: the chain's wait at a leaf, the leaf
      for (const auto& [leaf, wait] : waits.at(turn->second).second)
        best[class_of_leaf_[at(leaf)]] = std::max(best[class_of_leaf_[at(leaf)]], {wait, leaf});
      for (const auto& [leaf_class, worst] : best)
        if (crossed[at(leaf_class)] < 0) {
          crossed[at(leaf_class)] = worst.second;
          --missing;
        }
    }
    return crossed;
  }

  const Job& job_;
  const Program& program_;
  const Job twin_;
  Folding folding_;  // of the twin
  // Of one network.
  std::size_t network_ = 0;
  std::vector<int> class_of_leaf_;
  std::vector<std::vector<int>> classes_;  // their leaves
  std::vector<LeafFlow> flows_;            // sorted by leaf and set
  std::vector<std::size_t> first_flow_;    // by leaf
};

}  // namespace

std::optional<Cluster> repeat_draw(const Job& job, const Program& program) {
  const auto& networks = job.cluster.network_layout;
  if (std::none_of(networks.begin(), networks.end(), hashes_flows)) return std::nullopt;
  return DrawRepeater(job, program).repeat();
}

}  // namespace motley
