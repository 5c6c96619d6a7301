// The cluster of a published row: its accelerators in nodes, and the figures of its software and its recipe.
#include <fmt/format.h>

#include <algorithm>

#include "models/cluster/measured_layers.hpp"
#include "models/published/printed_row.hpp"
#include "models/published/published_stages.hpp"
#include "models/scenario/software.hpp"
#include "models/scenario/use_layers.hpp"

namespace motley {
namespace {

const AcceleratorRule& accelerator_of(const PrintedRow& row, const std::string& name) {
  const AcceleratorRule* const rule = row.rules.accelerator(name);
  if (!rule) pass_over(fmt::format("no nodes are known of `{}`", row.cells.text("accelerator")));
  return *rule;
}

// A cluster with chips of the named kinds, from the groups with those names in one cluster.
Cluster mixed_cluster(const PrintedRow& row, const std::map<std::string, std::int64_t>& counts) {
  std::int64_t chips = 0;
  for (const auto& [kind, count] : counts) chips += count;
  if (chips > kPublishedChips.most)
    pass_over(
        fmt::format("`{}` are {} chips, more than any cluster has", row.cells.text("accelerator"), chips));
  Cluster cluster = load_cluster(accelerator_of(row, counts.begin()->first).cluster);
  cluster.name = row.run.set;
  if (!keep_chips(counts, cluster))
    pass_over(fmt::format("`{}` does not stand in one cluster that is known", row.cells.text("accelerator")));
  return cluster;
}

Interval use_trial_or_shipped(const PrintedRow& row, Cluster& cluster) {
  const Yaml trial = row.rules.trial_figures(row.set.software);
  if (!trial) return use_software(row.set.software, cluster);
  use_kept(row.set.software, cluster);
  return use_figures(trial, cluster, row.set.software);
}

}  // namespace

Cluster printed_cluster(const PrintedRow& row) {
  const PrintedCells& cells = row.cells;
  if (const auto counts = chips_by_kind(cells.text("accelerator"))) return mixed_cluster(row, *counts);
  const AcceleratorRule& rule = accelerator_of(row, cells.text("accelerator"));
  const std::int64_t count = cells.count("n_accelerators");
  Cluster cluster = load_cluster(rule.cluster);
  if (cluster.groups.size() > 1) return mixed_cluster(row, {{cells.text("accelerator"), count}});
  cluster.name = row.run.set;
  NodeGroup& group = cluster.groups.at(0);
  const std::int64_t a_node = rule.domain > 0
                                  ? std::min<std::int64_t>(rule.domain, count)
                                  : std::min(count, cells.count_or("per_node", group.chips_per_node));
  if (count % a_node != 0) pass_over(fmt::format("{} chips in nodes of {}", count, a_node));
  group.chip = load_chip(rule.chip);
  group.chips_per_node = static_cast<int>(a_node);
  group.nodes = static_cast<int>(count / a_node);
  for (Nic& nic : group.nics) {
    nic.count = static_cast<int>(std::min<std::int64_t>(nic.count, a_node));
    if (row.set.nics > 0) nic.bandwidth = row.set.nics / static_cast<double>(nic.count);
  }
  build_topology(cluster);
  return cluster;
}

Interval use_software_of_set(const PrintedRow& row, Cluster& cluster) {
  const std::string& software = row.set.software;
  if (software.empty()) return use_usual_software(cluster);
  Cluster shipped = cluster;
  const Interval interval = use_trial_or_shipped(row, shipped);
  const FitWithoutRuns* const fit = row.rules.fit_without_run(row.run.id);
  if (fit && fit->software.contains(software))
    use_figures(fit->software.at(software), cluster);
  else
    cluster = std::move(shipped);
  return interval;
}

void use_what_is_kept(const PrintedRow& row, Cluster& cluster) {
  use_kept(row.set.software, cluster);
  const bool cut = row.cells.count_or("tp", 1) > 1 && !row.set.kept_cut.empty();
  const auto& kept = cut ? row.set.kept_cut : row.set.kept;
  if (const auto name = kept.find(row.cells.text("accelerator")); name != kept.end())
    use_kept(name->second, cluster);
  if (row.recipe && !row.recipe->kept.empty()) use_kept(row.recipe->kept, cluster);
}

// Assumes: attention without a fused kernel takes as long as the model's form says, unless a fit has other figures.
void use_attention_of_recipe(const PrintedRow& row, Cluster& cluster) {
  if (!row.recipe || !row.recipe->unfused_attention) return;
  for (NodeGroup& group : cluster.groups)
    if (group.chip.software.unfused_attention.value == 0)
      group.chip.software.unfused_attention = {1, "the run's recipe: platforms/published/unprinted.yaml"};
}

void use_measured_layers(const PrintedRow& row, const Job& job, Cluster& cluster) {
  if (const std::string& layers = row.model().layers; !layers.empty())
    use_layers(layers, job.transformer, job.train, cluster);
}

}  // namespace motley
