#include "models/plan/ablation.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

Layers& chunk_of(Stage& stage, std::size_t chunk, Layers& first) {
  if (chunk > 0) return stage.more[chunk - 1];
  first = {stage.first_layer, stage.last_layer};
  return first;
}

void spread_evenly(PipelineTemplate& pipeline, std::int64_t layers) {
  const std::vector<VirtualStage> stages = virtual_stages(pipeline);
  const auto counts = even_layers(layers, static_cast<std::int64_t>(stages.size()));
  std::vector<std::size_t> chunks(pipeline.stages.size(), 0);
  std::int64_t next = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    Stage& stage = pipeline.stages[at(stages[i].stage)];
    Layers first;
    Layers& chunk = chunk_of(stage, chunks[at(stages[i].stage)]++, first);
    chunk = {next, next + counts[i]};
    if (&chunk == &first) {
      stage.first_layer = chunk.first;
      stage.last_layer = chunk.last;
    }
    next += counts[i];
  }
}

// All stages recompute what any of them does, in all their layers.
void recompute_alike(Strategy& strategy) {
  Recompute most;
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const Stage& stage : pipeline.stages) {
      const Recompute& own = stage.recompute.value_or(strategy.recompute);
      most.modules = static_cast<std::uint8_t>(most.modules | own.modules);
      most.layer = most.layer || own.layer;
    }
  if (most.layer) most.modules = 0;
  strategy.recompute = most;
  for (PipelineTemplate& pipeline : strategy.templates)
    for (Stage& stage : pipeline.stages) {
      stage.recompute.reset();
      stage.recompute_layers.reset();
    }
}

void reshard_alike(Strategy& strategy, Resharding resharding) {
  for (PipelineTemplate& pipeline : strategy.templates) use_resharding(pipeline, resharding);
}

void stop_overlap(Strategy& strategy) {
  strategy.overlap_p2p = strategy.overlap_gradients = strategy.overlap_parameters = false;
  strategy.overlap_experts = strategy.overlap_context = false;
}

void use(Ablation ablation, Job& job) {
  switch (ablation) {
    case Ablation::uniform_layers:
      for (PipelineTemplate& pipeline : job.strategy.templates)
        spread_evenly(pipeline, job.transformer.layers);
      break;
    case Ablation::uniform_recompute:
      return recompute_alike(job.strategy);
    case Ablation::naive_resharding:
      return reshard_alike(job.strategy, Resharding::direct);
    case Ablation::gathered_resharding:
      return reshard_alike(job.strategy, Resharding::gather);
    case Ablation::no_overlap:
      return stop_overlap(job.strategy);
    case Ablation::sockets:  // of the cluster: use_ethernet_alone()
      break;
  }
}

bool is_rdma(NicKind kind) { return kind != NicKind::ethernet; }

}  // namespace

std::optional<Job> ablated(Job job, std::span<const Ablation> ablations) {
  for (const Ablation each : ablations) use(each, job);
  try {
    if (!ablations.empty()) validate(job.transformer, job.train, job.strategy);
  } catch (const Refusal&) {
    return std::nullopt;
  }
  return job;
}

void use_ethernet_alone(Cluster& cluster) {
  std::set<std::string> turned;  // groups whose RDMA NICs become Ethernet
  for (NodeGroup& group : cluster.groups) {
    const auto is_ethernet = [](const Nic& nic) { return !is_rdma(nic.kind); };
    if (std::any_of(group.nics.begin(), group.nics.end(), is_ethernet)) {
      std::erase_if(group.nics, [](const Nic& nic) { return is_rdma(nic.kind); });
      continue;
    }
    if (group.nics.empty()) continue;
    turned.insert(group.name);
    group.nics.resize(1);  // the first kind, which its nodes use
    group.nics[0].kind = NicKind::ethernet;
  }
  std::set<std::set<std::string>> joined;
  std::erase_if(cluster.links, [&](const GroupLink& link) {
    return !joined.insert({link.from, link.to}).second;
  });
  for (GroupLink& link : cluster.links) link.over = NicKind::ethernet;
  // A network of all groups stays the only one; others keep those of their groups that had no Ethernet.
  std::stable_partition(cluster.networks.begin(), cluster.networks.end(),
                        [](const Network& network) { return !is_rdma(network.over); });
  const auto of_all = std::find_if(cluster.networks.begin(), cluster.networks.end(),
                                   [](const Network& network) { return network.groups.empty(); });
  const bool is_of_all = of_all != cluster.networks.end();
  if (is_of_all) cluster.networks = {Network(*of_all)};
  std::set<std::string> placed;
  for (Network& network : cluster.networks) {
    std::erase_if(network.groups, [&](const std::string& name) {
      return (is_rdma(network.over) && !turned.contains(name)) || !placed.insert(name).second;
    });
    network.over = NicKind::ethernet;
  }
  if (!is_of_all)
    std::erase_if(cluster.networks, [](const Network& network) { return network.groups.empty(); });
  build_topology(cluster);
}

}  // namespace motley
