#include "models/plan/baselines.hpp"

#include <algorithm>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

template <class Uses>
bool some_stage(const Strategy& strategy, const Uses& uses) {
  return std::any_of(strategy.templates.begin(), strategy.templates.end(), [&](const PipelineTemplate& each) {
    return std::any_of(each.stages.begin(), each.stages.end(), uses);
  });
}

// What is slow in that group, with the numbers that its chips and nodes have there.
std::vector<Slow> slow_in(const Cluster& cluster, int group) {
  const GroupLayout& layout = cluster.layout[at(group)];
  const NodeGroup& nodes = cluster.groups[at(group)];
  const int chips = nodes.nodes * nodes.chips_per_node;
  std::vector<Slow> list;
  for (Slow each : cluster.slow) {
    std::optional<int>& number = each.chip ? each.chip : each.node;
    const int first = each.chip ? layout.first_chip : layout.first_node;
    if (*number < first || *number >= first + (each.chip ? chips : nodes.nodes)) continue;
    *number -= first;
    list.push_back(each);
  }
  return list;
}

}  // namespace

Job alone_on(const Job& job, int group) {
  Job alone = job;
  alone.strategy = {};
  Cluster& cluster = alone.cluster;
  cluster.slow = slow_in(job.cluster, group);
  cluster.groups = {job.cluster.groups[at(group)]};
  cluster.links.clear();
  std::erase_if(cluster.networks, [&](const Network& network) {
    const auto& names = network.groups;
    const auto& nics = cluster.groups[0].nics;
    const bool has_nics =
        std::any_of(nics.begin(), nics.end(), [&](const Nic& nic) { return nic.kind == network.over; });
    return !has_nics ||
           (!names.empty() && std::find(names.begin(), names.end(), cluster.groups[0].name) == names.end());
  });
  for (Network& network : cluster.networks)
    if (!network.groups.empty()) network.groups = {cluster.groups[0].name};
  build_topology(cluster);
  return alone;
}

std::vector<Baseline> plan_baselines(const Job& job, const Judge& judge, const PlanLimits& limits) {
  std::vector<Baseline> baselines;
  for (std::size_t group = 0; group < job.cluster.groups.size(); ++group) {
    const Job alone = alone_on(job, static_cast<int>(group));
    Baseline& baseline = baselines.emplace_back();
    baseline.group = alone.cluster.groups[0].name;
    baseline.chips = alone.cluster.chip_count();
    try {
      const Plan best = plan(alone, judge, limits);
      const Strategy& strategy = best.job.strategy;
      baseline.step_s = best.simulated_s;
      baseline.recomputes = some_stage(strategy, [&](const Stage& stage) {
        return stage.recompute.value_or(strategy.recompute) != Recompute::none;
      });
      baseline.offloads = some_stage(strategy, [&](const Stage& stage) {
        return stage.offload.value_or(strategy.offload) != Offload{};
      });
    } catch (const Refusal& refusal) {
      if (refusal.kind() != "no-plan") throw;
    }
  }
  return baselines;
}

std::optional<double> speedup_ratio(double step_s, const std::vector<Baseline>& baselines) {
  double together = 0;
  for (const Baseline& each : baselines) {
    if (!each.step_s) return std::nullopt;
    together += 1 / *each.step_s;
  }
  if (baselines.empty()) return std::nullopt;
  return 1 / step_s / together;
}

}  // namespace motley
