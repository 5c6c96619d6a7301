#include "sim/fabric/repeated_draw.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/cluster/switches.hpp"
#include "models/cost/network_cost.hpp"
#include "sim/fabric/fold.hpp"

namespace motley {
namespace {

bool hashes(const NetworkLayout& layout) {
  return has_inner_links(layout) && layout.network.shape != NetworkShape::dragonfly && layout.ways > 1;
}

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

// What one lane puts on its leaf's links up.
struct LeafFlow {
  int leaf = 0, to = 0, way = 0;
  double share = 1;
  bool waits = false;  // part of a collective, which waits for the slowest of its flows
  bool operator<(const LeafFlow& other) const { return std::tie(leaf, to) < std::tie(other.leaf, other.to); }
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
      if (!hashes(job_.cluster.network_layout[i])) continue;
      auto models = std::make_shared<const LeafModels>(models_of(i));
      bool stands = false;
      for (std::size_t leaf = 0; leaf < models->of_leaf.size(); ++leaf)
        stands = stands || at(models->of_leaf[leaf]) != leaf;
      if (!stands) continue;
      if (!repeated) repeated = job_.cluster;
      repeated->network_layout[i].models = std::move(models);
    }
    return repeated;
  }

 private:
  LeafModels models_of(std::size_t network) {
    const NetworkLayout& layout = job_.cluster.network_layout[network];
    const NetworkLayout& alike = twin_.cluster.network_layout[network];
    const std::vector<LeafFlow> flows = flows_of(layout, alike);
    first_flow_.assign(at(layout.leaves) + 1, 0);
    for (const LeafFlow& flow : flows) ++first_flow_[at(flow.leaf) + 1];
    for (std::size_t i = 1; i < first_flow_.size(); ++i) first_flow_[i] += first_flow_[i - 1];
    std::map<std::pair<int, int>, std::vector<int>> classes;
    class_of_leaf_.clear();
    for (int leaf = 0; leaf < layout.leaves; ++leaf) {
      const std::vector<std::int32_t>& link_class = folding_.symmetry.links.class_of;
      const int up = alike.first_link + 2 * leaf * alike.ways;
      class_of_leaf_.push_back(link_class[at(up)]);
      classes[{link_class[at(up)], link_class[at(up + 1)]}].push_back(leaf);
    }
    LeafModels models;
    models.of_leaf.resize(at(layout.leaves));
    for (const auto& [key, leaves] : classes) {
      const int model = model_among(leaves, flows, layout.ways);
      const std::vector<int> goals = goals_of(model, flows, layout.leaves);
      for (const int leaf : leaves) {
        models.of_leaf[at(leaf)] = model;
        const std::vector<int> own = goals_of(leaf, flows, layout.leaves);
        if (leaf == model || own.size() != goals.size()) continue;
        for (std::size_t i = 0; i < own.size(); ++i)
          models.destination.emplace(std::int64_t{leaf} * layout.leaves + own[i], goals[i]);
      }
    }
    return models;
  }

  // All flows that go from leaf to leaf, by leaf.
  std::vector<LeafFlow> flows_of(const NetworkLayout& layout, const NetworkLayout& alike) const {
    std::vector<LeafFlow> flows;
    const Arrangement& arrangement = folding_.arrangement;
    for (const Lane& lane : arrangement.lanes) {
      LeafFlow flow{-1, -1, 0, static_cast<double>(lane.parts), lane.group.has_value()};
      for (std::uint32_t i = lane.first_link; i < lane.last_link; ++i)
        if (const auto link = spine_link(alike, arrangement.links[i]))
          (link->up ? flow.leaf : flow.to) = link->leaf;
      if (flow.leaf < 0) continue;
      const auto chip = [&](Rank rank) { return program_.ranks[rank].chip; };
      for (const int id : route(job_.cluster, chip(lane.from), chip(lane.to), lane.carrier).links)
        if (const auto link = spine_link(layout, id)) flow.way = link->way;
      flows.push_back(flow);
    }
    std::stable_sort(flows.begin(), flows.end());
    return flows;
  }

  // The leaves to which a leaf's flows go, those of one class in the order of their distance.
  std::vector<int> goals_of(int leaf, const std::vector<LeafFlow>& flows, int leaves) const {
    std::vector<std::pair<std::pair<int, int>, int>> goals;
    for (std::size_t i = first_flow_[at(leaf)]; i < first_flow_[at(leaf) + 1]; ++i) {
      const int to = flows[i].to;
      if (goals.empty() || goals.back().second != to)
        goals.push_back({{class_of_leaf_[at(to)], (to - leaf + leaves) % leaves}, to});
    }
    std::sort(goals.begin(), goals.end());
    std::vector<int> in_order;
    for (const auto& goal : goals) in_order.push_back(goal.second);
    return in_order;
  }

  // Collectives wait for the slowest of all their flows, so the leaf is one whose busiest link is the busiest of all
  // by what they send. Of those with equally much it is the middle one by how unevenly all flows are spread.
  int model_among(const std::vector<int>& leaves, const std::vector<LeafFlow>& flows, int ways) const {
    struct Candidate {
      double busiest = 0, uneven = 0;
      int leaf = 0;
      auto operator<=>(const Candidate&) const = default;
    };
    std::vector<Candidate> candidates;
    std::vector<double> waits(at(ways)), all(at(ways));
    for (const int leaf : leaves) {
      std::fill(waits.begin(), waits.end(), 0.0);
      std::fill(all.begin(), all.end(), 0.0);
      for (std::size_t i = first_flow_[at(leaf)]; i < first_flow_[at(leaf) + 1]; ++i) {
        if (flows[i].waits) waits[at(flows[i].way)] += flows[i].share;
        all[at(flows[i].way)] += flows[i].share;
      }
      Candidate candidate{*std::max_element(waits.begin(), waits.end()), 0, leaf};
      for (const double load : all) candidate.uneven += load * load;
      candidates.push_back(candidate);
    }
    std::sort(candidates.begin(), candidates.end());
    const double most = candidates.back().busiest;
    const auto first = std::find_if(candidates.begin(), candidates.end(),
                                    [&](const Candidate& each) { return each.busiest == most; });
    return (first + (candidates.end() - first) / 2)->leaf;
  }

  const Job& job_;
  const Program& program_;
  const Job twin_;
  Folding folding_;                      // of the twin
  std::vector<std::size_t> first_flow_;  // by leaf
  std::vector<int> class_of_leaf_;
};

}  // namespace

std::optional<Cluster> repeat_draw(const Job& job, const Program& program) {
  const auto& networks = job.cluster.network_layout;
  if (std::none_of(networks.begin(), networks.end(), hashes)) return std::nullopt;
  return DrawRepeater(job, program).repeat();
}

}  // namespace motley
