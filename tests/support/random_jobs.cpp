#include "tests/support/random_jobs.hpp"

#include <algorithm>

#include "models/base/refusal.hpp"
#include "models/program/collective.hpp"
#include "models/scenario/scenario.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "tests/support/tiny_job.hpp"

namespace motley::tests {
namespace {

NodeGroup any_group(const std::string& name, Dice& dice) {
  NodeGroup group;
  group.name = name;
  group.chip = tiny_chip();
  group.chip.peak_flops[Format::fp32].value = dice.one_of({2e10, 1e11});
  group.chip.memory_bandwidth.value = dice.one_of({3e9, 1e10});
  group.chip.software.step_overhead = {dice.one_of({0.0, 3e-6}), "assumed"};
  group.chips_per_node = dice.one_of({1, 2, 4, 8});
  group.inside = {dice.one_of({FabricKind::nvswitch, FabricKind::nvlink_mesh, FabricKind::xgmi_mesh,
                               FabricKind::pcie, FabricKind::loopback}),
                  dice.one_of({3e7, 2e8, 1e9}), dice.one_of({0.0, 2e-6})};
  const auto count = [&] { return dice.one_of({1, 2, group.chips_per_node}); };
  group.nics = {{dice.one_of({NicKind::infiniband, NicKind::roce}), std::min(count(), group.chips_per_node),
                 dice.one_of({2e7, 1e8, 4e8}), dice.one_of({1e-6, 5e-6})}};
  group.nics.push_back({NicKind::ethernet, 1, dice.one_of({1e7, 5e7}), dice.one_of({5e-6, 2e-5})});
  if (dice.once_in(4)) group.nics[0].far = 0.75;
  return group;
}

// Joins every pair of groups: over the fast NICs if both have the same kind, otherwise over Ethernet; or makes all
// groups sites.
void join_groups(Cluster& cluster, Dice& dice) {
  const bool sites = dice.once_in(3);
  for (std::size_t i = 0; i < cluster.groups.size(); ++i)
    for (std::size_t j = i + 1; j < cluster.groups.size(); ++j) {
      const NodeGroup &a = cluster.groups[i], &b = cluster.groups[j];
      const bool fast = a.nics[0].kind == b.nics[0].kind;
      GroupLink link{a.name, b.name, fast ? a.nics[0].kind : NicKind::ethernet};
      if (sites) {
        link.bandwidth = dice.one_of({1e7, 1e8});
        link.latency_s = dice.one_of({1e-5, 1e-4});
        if (dice.once_in(2)) link.per_flow = 6e6;
      }
      link.staged = dice.once_in(6);
      cluster.links.push_back(link);
    }
}

Network any_network(NicKind over, Dice& dice) {
  Network network;
  network.over = over;
  network.shape = dice.one_of({NetworkShape::single, NetworkShape::leaf_spine, NetworkShape::rail_optimised,
                               NetworkShape::dragonfly});
  network.nodes_per_leaf = dice.one_of({1, 2});
  network.spines = dice.one_of({1, 2});
  network.oversubscription = dice.one_of({1.0, 2.0, 4.0});
  network.routing = dice.one_of({Routing::ecmp, Routing::adaptive});
  network.routers_per_group = dice.one_of({1, 2});
  network.local = dice.one_of({5e7, 2e8});
  network.global = dice.one_of({3e7, 1e8});
  network.latency_s = dice.one_of({0.0, 1e-6});
  return network;
}

Transformer any_transformer(Dice& dice) {
  Transformer t = tiny_transformer(dice.one_of({Family::gpt2, Family::llama}));
  t.layers = 8;
  t.hidden = dice.one_of({16, 32});
  t.head_dim = t.hidden / t.heads;
  t.ffn = dice.one_of({32, 64});
  t.vocabulary = dice.one_of({64, 256});
  if (t.family == Family::llama && dice.once_in(2))
    t.experts = {.count = 4, .per_token = 2, .ffn = 32, .dense_layers = {1}, .normalise = true};
  return t;
}

// Varies what stages may differ in: how they are cut, how data is sent over their boundaries, and, with one chunk, how
// often they are replicated. Some divide their experts.
void vary_stages(const Transformer& t, PipelineTemplate& pipeline, bool one_chunk, Dice& dice) {
  const std::int64_t sequences = pipeline.replicas * std::max<std::int64_t>(pipeline.micro_batch, 1);
  const bool cuts = dice.once_in(3), replicates = one_chunk && dice.once_in(3);
  for (Stage& stage : pipeline.stages) {
    if (cuts) stage.tensor_parallel = dice.one_of({1, 2, 4});
    if (replicates) stage.replicas = std::min(sequences, dice.one_of<std::int64_t>({1, 2, 4}));
    if (stage.on.size() > 1) stage.on.resize(1);
    stage.resharding = dice.one_of({Resharding::direct, Resharding::gather});
    const std::int64_t ranks = pipeline.replicas_of(stage) * stage.tensor_parallel;
    if (t.experts.count == 0 || dice.once_in(2)) continue;
    stage.expert_tensor_parallel = dice.one_of<std::int64_t>({1, stage.tensor_parallel});
    stage.expert_parallel = std::min(dice.one_of<std::int64_t>({2, 4}), ranks / stage.expert_tensor_parallel);
  }
}

// Gives the stages of a pipeline without chunks all layers in order, cut at random places.
void spread_layers(const Transformer& t, PipelineTemplate& pipeline, Dice& dice) {
  std::vector<std::int64_t> cuts;
  for (std::int64_t layer = 1; layer < t.layers; ++layer) cuts.push_back(layer);
  dice.shuffle(cuts);
  cuts.resize(pipeline.stages.size() - 1);
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(t.layers);
  std::int64_t next = 0;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    pipeline.stages[i].first_layer = next;
    pipeline.stages[i].last_layer = next = cuts[i];
  }
}

PipelineTemplate any_template(const std::vector<NodeGroup>& groups, int most_stages, Dice& dice) {
  PipelineTemplate pipeline;
  const int stages = dice.one_of({1, 2, most_stages});
  const std::int64_t tp = dice.one_of({1, 2, 2, 4});
  pipeline.replicas = stages * tp > 4 ? dice.one_of({1, 2}) : dice.one_of({1, 2, 4});
  pipeline.micro_batches = stages * dice.one_of({2, 3});
  pipeline.micro_batch = dice.one_of({0, 2});
  const bool placed = dice.once_in(2);
  std::size_t group = dice.engine()() % groups.size();
  for (int i = 0; i < stages; ++i) {
    Stage stage;
    stage.tensor_parallel = tp;
    if (placed) stage.on = {groups[group].name};
    if (placed && pipeline.replicas > 1 && groups.size() > 1 && dice.once_in(3))
      stage.on.push_back(groups[(group + 1) % groups.size()].name);
    if (dice.once_in(2)) group = (group + 1) % groups.size();  // the next stage may be in another group
    if (dice.once_in(4)) stage.recompute = Recompute::full;
    pipeline.stages.push_back(stage);
  }
  return pipeline;
}

Strategy any_strategy(const Transformer& t, const std::vector<NodeGroup>& groups, Dice& dice) {
  Strategy strategy;
  const bool simple = dice.once_in(2);
  const Schedule schedule = simple ? dice.one_of({Schedule::gpipe, Schedule::one_f_one_b})
                                   : dice.one_of({Schedule::interleaved, Schedule::zb_h1, Schedule::zb_h2,
                                                  Schedule::zb_v, Schedule::dualpipe_v});
  for (int i = dice.one_of({1, 1, 2, 3}); i > 0; --i)
    strategy.templates.push_back(any_template(groups, simple ? 3 : 4, dice));
  use_schedule(t, strategy, schedule, standard_chunks(schedule));
  if (simple)
    for (PipelineTemplate& pipeline : strategy.templates) spread_layers(t, pipeline, dice);
  strategy.recompute = dice.one_of({Recompute::none, Recompute::none, Recompute::full});
  strategy.p2p_buffers = dice.one_of({1, 2, 3});
  strategy.overlap_p2p = !simple || !dice.once_in(4);
  strategy.overlap_gradients = dice.once_in(2);
  strategy.bucket_bytes = dice.one_of({3'000, 20'000, 100'000'000});
  for (PipelineTemplate& pipeline : strategy.templates) vary_stages(t, pipeline, simple, dice);
  strategy.zero = dice.one_of({0, 1, 2, 3});
  if (strategy.zero > 0 && dice.once_in(3)) strategy.shard_over = 2;
  strategy.prefetch = dice.one_of({0, 1, 2});
  strategy.overlap_parameters = dice.once_in(3);
  strategy.overlap_steps = false;  // a trace is of one step, from its begin
  return strategy;
}

// Adds, if they are legal for the job: divided rows and sequences, recompute of parts, overlapped experts, states and
// activations in the node's memory, modules that predict further tokens.
void vary_what_is_held(Job& job, Dice& dice) {
  const auto take = [&](const auto& change) {
    const Transformer transformer = job.transformer;
    const Strategy strategy = job.strategy;
    change();
    if (!find_complaint(job.transformer, job.train, job.strategy)) return;
    job.transformer = transformer;
    job.strategy = strategy;
  };
  if (job.transformer.family == Family::llama && dice.once_in(3))
    take([&] {
      job.transformer.extra_predictions = dice.one_of({1, 2});
      job.transformer.extra_prediction_weight = 0.3;
    });
  if (dice.once_in(3)) take([&] { job.strategy.sequence_parallel = true; });
  if (dice.once_in(4))
    take([&] {
      for (PipelineTemplate& pipeline : job.strategy.templates) pipeline.context_parallel = 2;
    });
  if (dice.once_in(4)) take([&] { job.strategy.recompute = Recompute::selective; });
  if (dice.once_in(2)) take([&] { job.strategy.overlap_experts = true; });
  if (dice.once_in(4))
    take([&] {
      job.strategy.recompute = Recompute::none;
      for (const Module module : every<Module>())
        if (dice.once_in(2) && (module != Module::latent || job.transformer.latent.used()) &&
            (module != Module::router || job.transformer.experts.count > 0))
          job.strategy.recompute.add(module);
    });
  if (dice.once_in(2)) take([&] { job.strategy.expert_weights = ExpertWeights::activation; });
  if (!dice.once_in(4)) return;
  take([&] { job.strategy.offload = {dice.one_of({0.0, 0.5, 1.0}), dice.one_of({0.0, 0.5, 1.0})}; });
  for (NodeGroup& group : job.cluster.groups)
    group.host = Host{1e12, 3e9, group.pcie ? 0 : dice.one_of({3e7, 3e8})};
}

// Gives each group as many nodes as the strategy's stages need there, and sometimes one more, which stays idle.
void count_nodes(const Strategy& strategy, std::vector<NodeGroup>& groups, Dice& dice) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    NodeGroup& group = groups[i];
    std::int64_t chips = 0;
    for (const PipelineTemplate& pipeline : strategy.templates)
      for (const Stage& stage : pipeline.stages) {
        const std::int64_t taken = pipeline.copies_of(stage) * stage.tensor_parallel;
        if (std::find(stage.on.begin(), stage.on.end(), group.name) != stage.on.end())
          chips += taken / static_cast<std::int64_t>(stage.on.size());
        if (stage.on.empty()) chips += taken;  // they may all be placed here
      }
    group.nodes = static_cast<int>((chips + group.chips_per_node - 1) / group.chips_per_node);
    group.nodes = std::max(1, group.nodes) + (dice.once_in(4) ? 1 : 0);
  }
}

// Whether the drawn job can be compiled: templates may divide the same experts or layers in ways that do not fit
// together.
bool stands(const Job& job) {
  try {
    Program program;
    compile_passes().front().run(job, program);
    return true;
  } catch (const Refusal& refusal) {
    if (refusal.kind() != "impossible-sharding" && refusal.kind() != "unequal-expert-parallel") throw;
    return false;
  }
}

// Takes back divisions, one by one, until stands() is true.
void make_stand(Job& job) {
  if (stands(job)) return;
  job.strategy.shard_over = 0;
  while (job.strategy.zero > 1 && !stands(job)) --job.strategy.zero;
  if (job.strategy.zero < 3) job.strategy.reshard_after_forward = true;  // legal with zero 3 alone
  if (stands(job)) return;
  for (PipelineTemplate& pipeline : job.strategy.templates)
    for (Stage& stage : pipeline.stages) stage.expert_parallel = 1;
  if (stands(job)) return;
  for (PipelineTemplate& pipeline : job.strategy.templates)
    for (Stage& stage : pipeline.stages) stage.expert_tensor_parallel = 0;
}

CollectiveAlgorithm any_algorithm(Dice& dice) {
  using Algorithm = CollectiveAlgorithm;
  return dice.one_of({Algorithm::ring, Algorithm::ring, Algorithm::tree, Algorithm::double_binary_tree,
                      Algorithm::recursive, Algorithm::hierarchical, Algorithm::in_switch, Algorithm::fastest,
                      Algorithm::automatic});
}

}  // namespace

Job any_job(unsigned seed) {
  Dice dice(seed);
  Job job = tiny_job({1, 1, 1}, any_transformer(dice));
  job.cluster = {};
  job.cluster.name = "random";
  for (int i = dice.one_of({1, 2, 2, 3}); i > 0; --i)
    job.cluster.groups.push_back(any_group("group" + std::to_string(i), dice));
  join_groups(job.cluster, dice);
  job.cluster.transport = dice.one_of({TransportPolicy::by_group, TransportPolicy::by_group,
                                       TransportPolicy::holmes, TransportPolicy::sockets});
  for (const NicKind over : {NicKind::infiniband, NicKind::roce, NicKind::ethernet})
    if (dice.once_in(2)) job.cluster.networks.push_back(any_network(over, dice));
  job.strategy = any_strategy(job.transformer, job.cluster.groups, dice);
  job.train.micro_batch = 1;
  job.train.global_batch = 0;
  for (const PipelineTemplate& each : job.strategy.templates)
    job.train.global_batch += each.replicas * each.micro_batches *
                              (each.micro_batch > 0 ? each.micro_batch : job.train.micro_batch);
  Dice more(seed + 1'000'000);  // so that these draws do not change the others
  vary_what_is_held(job, more);
  job.strategy.overlap_context = !more.once_in(3);
  if (job.strategy.zero >= 2 && more.once_in(3)) job.strategy.reduce_gradients = ReduceGradients::last;
  const bool one_in_flight =
      job.strategy.schedule == Schedule::one_f_one_b &&
      std::all_of(job.strategy.templates.begin(), job.strategy.templates.end(),
                  [](const PipelineTemplate& each) { return each.stages.size() == 1; });
  job.strategy.reshard_after_forward = !(job.strategy.zero == 3 && one_in_flight && more.once_in(2));
  if (more.once_in(2)) job.strategy.put_off = PutOff::memory;
  count_nodes(job.strategy, job.cluster.groups, dice);
  build_topology(job.cluster);
  job.fidelity.data_parallel =
      dice.one_of({CollectiveLevel::fluid, CollectiveLevel::fluid, CollectiveLevel::expanded});
  job.fidelity.tensor_parallel = dice.one_of(
      {CollectiveLevel::fluid, CollectiveLevel::fluid, CollectiveLevel::expanded, CollectiveLevel::formula});
  job.fidelity.algorithm = any_algorithm(dice);
  job.fidelity.fold = false;
  make_stand(job);
  validate(job.transformer, job.train, job.strategy);
  return job;
}

std::string written_out(const Job& job) {
  return std::string(name_of(job.fidelity.algorithm)) + " " + print(job.transformer) + print(job.strategy) +
         print(job.cluster);
}

}  // namespace motley::tests
