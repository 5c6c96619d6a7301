#include "tests/models/frameworks/random_strategies.hpp"

#include <algorithm>
#include <stdexcept>

#include "models/base/index.hpp"
#include "models/strategy/strategy_complaint.hpp"

namespace motley::tests {
namespace {

Transformer random_model(Dice& dice) {
  Transformer t;
  t.name = "random";
  t.family = dice.once_in(3) ? Family::gpt2 : Family::llama;
  t.heads = 8;
  t.head_dim = dice.one_of({8, 16});
  t.hidden = 64;
  if (t.family == Family::gpt2) t.head_dim = 8;
  t.kv_heads = t.heads;
  t.ffn = dice.one_of({128, 256});
  t.layers = dice.one_of({2, 4, 6, 8, 11, 12});
  t.vocabulary = dice.one_of({96, 101});
  t.max_positions = 128;
  t.tied_embeddings = dice.once_in(2);
  t.norm_epsilon = dice.one_of({1e-5, 1e-6});
  if (t.family == Family::gpt2) return t;
  t.rope_theta = dice.one_of({10000.0, 500000.0});
  const int biases = dice.one_of({0, 0, 1, 2});
  t.qkv_bias = biases > 0;
  t.output_bias = t.ffn_bias = biases > 1;
  if (dice.once_in(4)) {
    t.latent = {dice.one_of<std::int64_t>({0, 24}), 16, 8, 16};
    t.head_dim = 24;
    t.qkv_bias = t.output_bias = t.ffn_bias = false;
  } else {
    t.kv_heads = dice.one_of({8, 4});
    t.qk_norm = dice.once_in(3);
    if (dice.once_in(4)) t.sliding_window = 32;
    if (t.sliding_window > 0 && dice.once_in(2)) t.full_attention = {1};
  }
  if (!t.ffn_bias && dice.once_in(3)) {
    t.experts.count = 8;
    t.experts.per_token = dice.one_of({1, 2});
    t.experts.ffn = 64;
    t.experts.scores = dice.once_in(2) ? RouterScores::sigmoid : RouterScores::softmax;
    t.experts.normalise = t.experts.per_token > 1;
    t.experts.shared_ffn = dice.one_of({0, 64});
    if (t.experts.scores == RouterScores::sigmoid) t.experts.balancing_bias = dice.once_in(2);
    if (dice.once_in(3)) t.experts.dense_layers = {0};
    if (dice.once_in(3)) t.experts.scale = 2.5;
    if (dice.once_in(4)) t.experts.groups = t.experts.groups_per_token = 2;
  }
  if (dice.once_in(5)) {
    t.extra_predictions = 1;
    t.extra_prediction_weight = 0.25;
  }
  return t;
}

Train random_train(Dice& dice) {
  Train train;
  train.sequence = 32;
  train.micro_batch = dice.one_of({1, 2});
  train.precision = dice.one_of({Format::bf16, Format::fp16, Format::fp32});
  if (train.precision == Format::bf16) train.gradients = dice.one_of({Format::fp32, Format::bf16});
  train.learning_rate = dice.one_of({1e-3, 3e-4});
  train.beta2 = dice.one_of({0.95, 0.999});
  train.weight_decay = dice.one_of({0.0, 0.1});
  train.seed = dice.one_of({1U, 42U});
  return train;
}

// Layers over virtual stages: each has one at least, and the first and the last may have none.
std::vector<std::int64_t> random_layers(Dice& dice, std::int64_t layers, std::size_t parts) {
  std::vector<std::int64_t> counts(parts, 1);
  if (parts > 1 && dice.once_in(6)) counts.front() = 0;
  if (parts > 1 && dice.once_in(6)) counts.back() = 0;
  std::int64_t left = layers;
  for (const std::int64_t count : counts) left -= count;
  for (; left > 0; --left) ++counts[dice.engine()() % parts];
  return left < 0 ? std::vector<std::int64_t>{} : counts;
}

std::vector<Stage> random_stages(Dice& dice, std::int64_t layers, std::size_t pp, std::size_t chunks) {
  const std::vector<std::int64_t> counts = random_layers(dice, layers, pp * chunks);
  std::vector<Stage> stages(pp);
  std::int64_t next = 0;
  for (std::size_t v = 0; v < counts.size(); ++v) {
    Stage& stage = stages[v % pp];
    const Layers chunk{next, next + counts[v]};
    next = chunk.last;
    if (v >= pp) {
      stage.more.push_back(chunk);
    } else {
      stage.first_layer = chunk.first;
      stage.last_layer = chunk.last;
    }
  }
  return stages;
}

void choose_recompute(Dice& dice, const Transformer& t, Strategy& s) {
  const int kind = dice.one_of({0, 1, 2, 3});
  if (kind == 1) s.recompute = Recompute::full;
  if (kind == 2) {
    s.recompute = Recompute::full;
    const std::int64_t layers = dice.one_of({1, 2});
    for (Stage& stage : s.templates[0].stages) stage.recompute_layers = layers;
  }
  if (kind != 3) return;
  s.recompute.add(dice.once_in(2) ? Module::attention : Module::norms);
  if (t.latent.used()) s.recompute.add(Module::latent);
  if (t.experts.count > 0 && dice.once_in(2)) s.recompute.add(Module::activation);
}

void choose_options(Dice& dice, const Transformer& t, const Train& train, Strategy& s) {
  const PipelineTemplate& pipeline = s.templates[0];
  const std::int64_t tp = pipeline.stages[0].tensor_parallel;
  s.sequence_parallel = tp > 1 && (t.experts.count > 0 || dice.once_in(2));
  s.zero = dice.one_of({0, 1});
  if (s.zero == 1 && pipeline.replicas == 4 && pipeline.context_parallel == 1 && dice.once_in(2))
    s.shard_over = 2;
  s.overlap_gradients = dice.once_in(2);
  s.overlap_parameters = s.overlap_gradients && s.zero == 1 && dice.once_in(2);
  if (s.overlap_gradients) s.bucket_bytes = bytes_of(train.gradients) * dice.one_of({40'000'000, 1000});
  if (pipeline.context_parallel > 1) s.overlap_context = dice.once_in(2);
  if (t.experts.count > 0) s.expert_weights = ExpertWeights::activation;
  if (s.zero == 1 && dice.once_in(3)) s.offload.optimizer = dice.one_of({0.5, 1.0});
}

std::optional<Job> try_megatron_job(Dice& dice) {
  Job job;
  job.transformer = random_model(dice);
  job.train = random_train(dice);
  Strategy& s = job.strategy;
  const auto pp = dice.one_of<std::size_t>({1, 1, 2, 3, 4});
  const std::size_t chunks = pp > 1 ? dice.one_of<std::size_t>({1, 1, 2, 3}) : 1;
  s.schedule = chunks > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
  if (pp > 1) s.overlap_p2p = chunks > 1 && (pp == 2 || dice.once_in(2));
  PipelineTemplate& pipeline = s.templates.emplace_back();
  pipeline.stages = random_stages(dice, job.transformer.layers, pp, chunks);
  pipeline.replicas = dice.one_of({1, 2, 4});
  pipeline.context_parallel = dice.one_of({1, 1, 2});
  pipeline.micro_batches = static_cast<std::int64_t>(pp) * dice.one_of({1, 2, 3});
  const std::int64_t tp = dice.one_of({1, 2, 4}), ep = dice.one_of({1, 2, 4});
  for (Stage& stage : pipeline.stages) {
    stage.tensor_parallel = tp;
    if (job.transformer.experts.count == 0) continue;
    stage.expert_parallel = ep;
    stage.expert_tensor_parallel = tp > 1 && ep == 2 ? 1 : 0;
  }
  job.train.global_batch = pipeline.replicas * pipeline.micro_batches * job.train.micro_batch;
  choose_recompute(dice, job.transformer, s);
  choose_options(dice, job.transformer, job.train, s);
  s.overlap_experts = ep > 1 && job.train.precision != Format::fp32 && job.transformer.experts.count > 0 &&
                      !s.recompute.layer && (pp == 1 || chunks > 1) && dice.once_in(2);
  if (s.overlap_experts && pipeline.context_parallel > 1)
    s.overlap_context = false;  // they gather first anyway
  if (find_complaint(job.transformer, job.train, s)) return std::nullopt;
  return job;
}

// Degrees of a stage that suit the stage before, by which activations come.
void choose_degrees(Dice& dice, const Job& job, std::size_t index, bool may_differ,
                    std::vector<Stage>& stages) {
  Stage& stage = stages[index];
  const Stage& before = stages[index > 0 ? index - 1 : 0];
  stage.tensor_parallel = index == 0 ? dice.one_of({1, 2, 4}) : before.tensor_parallel;
  stage.replicas = before.replicas;
  if (index > 0 && may_differ && dice.once_in(2)) stage.tensor_parallel = dice.one_of({1, 2, 4});
  if (index > 0 && may_differ && dice.once_in(3)) stage.replicas = dice.one_of({1, 2, 4});
  if (job.transformer.experts.count > 0) {
    stage.expert_parallel = dice.one_of({1, 2});
    stage.expert_tensor_parallel =
        stage.tensor_parallel > 1 && stage.expert_parallel == 2 && dice.once_in(2) ? 1 : 0;
  }
  stage.on = {2 * index < stages.size() ? "fast" : "slow"};
}

std::optional<Job> try_flagscale_job(Dice& dice) {
  Job job;
  job.transformer = random_model(dice);
  job.train = random_train(dice);
  Strategy& s = job.strategy;
  const auto pp = dice.one_of<std::size_t>({1, 2, 3, 4});
  if (pp > 1) s.overlap_p2p = false;
  PipelineTemplate& pipeline = s.templates.emplace_back();
  pipeline.stages = random_stages(dice, job.transformer.layers, pp, 1);
  const std::int64_t replicas = dice.one_of({1, 2, 4});
  pipeline.stages[0].replicas = replicas;
  const bool may_differ = dice.once_in(2);
  for (std::size_t i = 0; i < pp; ++i) choose_degrees(dice, job, i, may_differ, pipeline.stages);
  for (Stage& stage : pipeline.stages)
    if (stage.replicas == replicas) stage.replicas = 0;
  pipeline.replicas = replicas;
  pipeline.context_parallel = dice.one_of({1, 1, 2});
  pipeline.micro_batches = dice.one_of({1, 2, 6});
  job.train.global_batch = pipeline.replicas * pipeline.micro_batches * job.train.micro_batch;
  choose_recompute(dice, job.transformer, s);
  choose_options(dice, job.transformer, job.train, s);
  if (pipeline.has_unlike_replicas()) s.shard_over = 0;
  s.sequence_parallel = false;
  for (const Stage& stage : pipeline.stages)
    s.sequence_parallel = s.sequence_parallel || stage.tensor_parallel > 1;
  if (s.recompute.modules == 0 && dice.once_in(2))  // by stage
    for (Stage& stage : pipeline.stages) {
      stage.recompute = dice.once_in(2) ? Recompute::full : Recompute::none;
      stage.recompute_layers = std::nullopt;
      if (*stage.recompute == Recompute::full && dice.once_in(2))
        stage.recompute_layers = dice.one_of({1, 2});
    }
  const Stage &first = pipeline.stages.front(), &last = pipeline.stages.back();
  if (first.tensor_parallel != last.tensor_parallel &&
      (job.transformer.tied_embeddings || job.transformer.trained_extra() > 0))
    return std::nullopt;
  for (const Stage& stage : pipeline.stages)
    if (stage.first_layer == stage.last_layer) return std::nullopt;
  if (find_complaint(job.transformer, job.train, s)) return std::nullopt;
  return job;
}

}  // namespace

Cluster unlike_cluster() {
  Cluster cluster = load_cluster("hethub-pair-nvidia-amd");
  for (NodeGroup& group : cluster.groups) {
    group.name = &group == &cluster.groups[0] ? "fast" : "slow";
    group.nodes = 64;
    group.host = Host{.memory = 1e12, .memory_bandwidth = 200e9, .link = 25e9};
  }
  cluster.links[0].from = "fast";
  cluster.links[0].to = "slow";
  for (Network& network : cluster.networks) network.groups.clear();
  build_topology(cluster);
  return cluster;
}

Job deepspeed_job(unsigned seed) {
  Dice dice(seed);
  for (int tries = 0; tries < 1000; ++tries) {
    Job job;
    job.transformer = random_model(dice);
    job.train = random_train(dice);
    Strategy& s = job.strategy;
    PipelineTemplate& pipeline = s.templates.emplace_back();
    Stage& stage = pipeline.stages.emplace_back();
    stage.last_layer = job.transformer.layers;
    stage.tensor_parallel = dice.one_of({1, 2, 4});
    pipeline.replicas = dice.one_of({1, 2, 4, 8});
    pipeline.micro_batches = dice.one_of({1, 2, 3, 4, 5});
    job.train.global_batch = pipeline.replicas * pipeline.micro_batches * job.train.micro_batch;
    s.zero = dice.one_of({0, 1, 2, 3});
    s.overlap_gradients = s.zero > 0 && dice.once_in(2);
    if (s.overlap_gradients)
      s.bucket_bytes = bytes_of(job.train.gradients) * dice.one_of({500'000'000, 1000});
    if (s.zero == 3 && pipeline.replicas > 2 && dice.once_in(2)) s.shard_over = 2;
    if (s.zero > 0 && dice.once_in(3)) s.offload.optimizer = s.zero == 3 ? dice.one_of({0.5, 1.0}) : 1.0;
    if (!find_complaint(job.transformer, job.train, s)) return job;
  }
  throw std::logic_error("no legal job was drawn");
}

Job flagscale_job(unsigned seed) {
  Dice dice(seed);
  for (int tries = 0; tries < 1000; ++tries)
    if (auto job = try_flagscale_job(dice)) return *job;
  throw std::logic_error("no legal job was drawn");
}

Job megatron_job(unsigned seed) {
  Dice dice(seed);
  for (int tries = 0; tries < 1000; ++tries)
    if (auto job = try_megatron_job(dice)) return *job;
  throw std::logic_error("no legal job was drawn");
}

}  // namespace motley::tests
