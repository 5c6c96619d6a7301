#include "sim/fold/repeated_draw.hpp"

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
#include "sim/fold/fold.hpp"

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

// A lane between two leaves, as one of them sees it.
struct LeafFlow {
  int leaf = 0, other = 0, way = 0;
  Rank source, target;
  std::int32_t lane_class = 0;  // without hashing
  double share = 1;
  std::int32_t set = kTransfers;  // flows of collectives that choose their model together
  auto key() const { return std::tie(leaf, set, other, source, target); }
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

// All flows that leave the leaves of a network, or all that arrive there.
class Side {
 public:
  Side() = default;
  Side(std::vector<LeafFlow> flows, int leaves, int ways) : flows_(std::move(flows)), ways_(ways) {
    std::stable_sort(flows_.begin(), flows_.end(),
                     [](const LeafFlow& a, const LeafFlow& b) { return a.key() < b.key(); });
    // Two groups of the same members run at different times, so that an edge of both counts once.
    const auto again = [](const LeafFlow& a, const LeafFlow& b) {
      return a.set != kTransfers && a.key() == b.key();
    };
    flows_.erase(std::unique(flows_.begin(), flows_.end(), again), flows_.end());
    first_flow_.assign(at(leaves) + 1, 0);
    for (const LeafFlow& flow : flows_) ++first_flow_[at(flow.leaf) + 1];
    std::partial_sum(first_flow_.begin(), first_flow_.end(), first_flow_.begin());
  }

  const std::vector<LeafFlow>& flows() const { return flows_; }
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

  // A leaf's flows of one set, by how they load its links.
  struct Spread {
    double busiest = 0, uneven = 0;
    int leaf = 0;
    auto operator<=>(const Spread&) const = default;
  };
  // By set of collectives.
  std::map<std::int32_t, std::vector<Spread>> spreads(const std::vector<int>& leaves) const {
    std::map<std::int32_t, std::vector<Spread>> by_set;
    std::vector<double> load(at(ways_));
    for (const int leaf : leaves) {
      const std::span<const LeafFlow> all = flows(leaf);
      for (auto first = all.begin(); first != all.end();) {
        const std::span<const LeafFlow> some = flows(leaf, first->set);
        first += some.end() - some.begin();
        if (some[0].set == kTransfers) continue;
        std::fill(load.begin(), load.end(), 0.0);
        for (const LeafFlow& flow : some) load[at(flow.way)] += flow.share;
        by_set[some[0].set].push_back({*std::max_element(load.begin(), load.end()),
                                       std::inner_product(load.begin(), load.end(), load.begin(), 0.0),
                                       leaf});
      }
    }
    return by_set;
  }

 private:
  std::vector<LeafFlow> flows_;          // sorted by leaf and set
  std::vector<std::size_t> first_flow_;  // by leaf
  int ways_ = 1;
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
    std::vector<LeafFlow> flows;
    for (std::size_t index = 0; index < arrangement.lanes.size(); ++index) {
      const Lane& lane = arrangement.lanes[index];
      LeafFlow flow;
      flow.leaf = -1;
      for (std::uint32_t i = lane.first_link; i < lane.last_link; ++i)
        if (const auto link = spine_link(alike, arrangement.links[i]))
          (link->up ? flow.leaf : flow.other) = link->leaf;
      if (flow.leaf < 0) continue;
      const auto chip = [&](Rank rank) { return program_.ranks[rank].chip; };
      for (const int id : route(job_.cluster, chip(lane.from), chip(lane.to), lane.carrier).links)
        if (const auto link = spine_link(layout(), id)) flow.way = link->way;
      flow.source = lane.from;
      flow.target = lane.to;
      flow.lane_class = folding_.lane_class(static_cast<std::int32_t>(index));
      flow.share = lane.parts;
      if (lane.group) flow.set = flow.lane_class;
      flows.push_back(flow);
    }
    join_sets(flows);
    leaving_ = Side(flows, layout().leaves, layout().ways);
    for (LeafFlow& flow : flows) std::swap(flow.leaf, flow.other);
    arriving_ = Side(std::move(flows), layout().leaves, layout().ways);
  }

  // Flows between the same two leaves have one model.
  void join_sets(std::vector<LeafFlow>& flows) const {
    Sets sets(folding_.symmetry.lanes.first.size());
    std::unordered_map<std::int64_t, std::int32_t> between;
    for (const LeafFlow& flow : flows)
      if (flow.set != kTransfers)
        sets.join(flow.set, between.try_emplace(key_of(flow.leaf, flow.other), flow.set).first->second);
    for (LeafFlow& flow : flows)
      if (flow.set != kTransfers) flow.set = sets.root(flow.set);
  }
  std::int64_t key_of(int from, int to) const { return std::int64_t{from} * layout().leaves + to; }

  FlowModels choose_models() {
    FlowModels models;
    models.others.resize(at(layout().leaves));
    const std::vector<int> crossed = worst_transfers();
    for (std::size_t i = 0; i < classes_.size(); ++i)
      for (const int leaf : classes_[i])
        models.others[at(leaf)] = crossed[i] < 0 ? classes_[i].front() : crossed[i];
    const std::map<std::int32_t, bool> arrives = busier_on_arrival();
    for (const std::vector<int>& leaves : classes_)
      for (const Side* side : {&leaving_, &arriving_})
        for (const auto& [set, spreads] : side->spreads(leaves))
          if (arrives.at(set) == (side == &arriving_)) add(models, leaves, slowest(spreads), *side, set);
    for (std::size_t i = 0; i < classes_.size(); ++i)
      if (crossed[i] >= 0) add(models, classes_[i], crossed[i], leaving_, kTransfers);
    return models;
  }

  // By set: whether its busiest link is one to a leaf, not one from a leaf.
  std::map<std::int32_t, bool> busier_on_arrival() const {
    std::vector<int> leaves(at(layout().leaves));
    std::iota(leaves.begin(), leaves.end(), 0);
    std::map<std::int32_t, bool> arrives;
    const auto arriving = arriving_.spreads(leaves);
    for (const auto& [set, spreads] : leaving_.spreads(leaves))
      arrives[set] = std::max_element(spreads.begin(), spreads.end())->busiest <
                     std::max_element(arriving.at(set).begin(), arriving.at(set).end())->busiest;
    return arrives;
  }

  void add(FlowModels& models, const std::vector<int>& leaves, int model, const Side& side,
           std::int32_t set) const {
    const bool arrives = &side == &arriving_;
    const std::vector<int> others = others_of(side, model, set);
    for (const int leaf : leaves) {
      const std::vector<int> own = others_of(side, leaf, set);
      for (std::size_t i = 0; i < std::min(own.size(), others.size()); ++i)
        models.between.try_emplace(
            arrives ? key_of(own[i], leaf) : key_of(leaf, own[i]),
            arrives ? FlowModels::Leaves{others[i], model} : FlowModels::Leaves{model, others[i]});
    }
  }

  // The other leaves of a leaf's flows, those of one class in the order of their distance.
  std::vector<int> others_of(const Side& side, int leaf, std::int32_t set) const {
    std::vector<std::tuple<int, int, int>> others;
    for (const LeafFlow& flow : side.flows(leaf, set))
      if (others.empty() || std::get<2>(others.back()) != flow.other)
        others.emplace_back(class_of_leaf_[at(flow.other)],
                            (flow.other - leaf + layout().leaves) % layout().leaves, flow.other);
    std::sort(others.begin(), others.end());
    std::vector<int> in_order;
    for (const auto& other : others) in_order.push_back(std::get<2>(other));
    return in_order;
  }

  // Collectives wait for the slowest of all their flows, so this is the leaf whose busiest link is the busiest of all;
  // of those with equally much, the middle one by how unevenly its links are loaded.
  static int slowest(std::vector<Side::Spread> spreads) {
    std::sort(spreads.begin(), spreads.end());
    const double most = spreads.back().busiest;
    const auto first = std::find_if(spreads.begin(), spreads.end(),
                                    [&](const Side::Spread& each) { return each.busiest == most; });
    return (first + (spreads.end() - first) / 2)->leaf;
  }

  // By class: a leaf that the chain of transfers crosses which waits longest for its links. -1: no transfers.
  // Every step waits for the slowest chain, but no chain for the slowest links of others.
  std::vector<int> worst_transfers() {
    Sets chains(program_.ranks.size());
    for (const Lane& lane : folding_.arrangement.lanes)
      if (lane.out) chains.join(lane.from.value(), lane.to.value());
    const auto key = [&](int leaf, const LeafFlow& flow, bool up) {
      return (std::int64_t{leaf} * layout().ways + flow.way) * 2 + (up ? 1 : 0);
    };
    std::unordered_map<std::int64_t, int> sharing;
    for (const LeafFlow& flow : leaving_.flows())
      if (flow.set == kTransfers) {
        ++sharing[key(flow.leaf, flow, true)];
        ++sharing[key(flow.other, flow, false)];
      }
    std::unordered_map<std::int32_t, std::pair<double, std::map<int, double>>> waits;  // in all, by leaf
    for (const LeafFlow& flow : leaving_.flows()) {
      if (flow.set != kTransfers) continue;
      auto& [all, by_leaf] = waits[chains.root(flow.source.value())];
      const double times =
          std::max(sharing.at(key(flow.leaf, flow, true)), sharing.at(key(flow.other, flow, false)));
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
  Side leaving_, arriving_;
};

}  // namespace

std::optional<Cluster> repeat_draw(const Job& job, const Program& program) {
  const auto& networks = job.cluster.network_layout;
  if (std::none_of(networks.begin(), networks.end(), hashes_flows)) return std::nullopt;
  return DrawRepeater(job, program).repeat();
}

}  // namespace motley
