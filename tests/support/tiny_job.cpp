#include "tests/support/tiny_job.hpp"

namespace motley::tests {

Transformer tiny_transformer(Family family) {
  Transformer t;
  t.name = family == Family::gpt2 ? "tiny-gpt2" : "tiny-llama";
  t.family = family;
  t.vocabulary = 256;
  t.hidden = 32;
  t.layers = 4;
  t.heads = 4;
  t.kv_heads = 4;
  t.head_dim = 8;
  t.ffn = family == Family::gpt2 ? 128 : 96;
  t.max_positions = 16;
  t.tied_embeddings = family == Family::gpt2;
  return t;
}

namespace {

// Changes a tiny llama to a variant that is simulated only.
void vary_simulated(const std::string& name, Transformer& t) {
  if (name == "gemma2-experts") {
    t.norms = NormPlaces::both;
    t.activation = GateActivation::gelu;
    t.sliding_window = 5;
    t.full_attention = {1, 3};
    t.attention_softcap = 50;
    t.logit_softcap = 30;
    t.embedding_scale = 5.5;
    t.experts = {.count = 4, .per_token = 2, .ffn = 48, .dense_layers = {}};
  }
  if (name == "gpt-oss") {
    t.qkv_bias = t.output_bias = t.attention_sinks = true;
    t.activation = GateActivation::clamped_silu;
    t.sliding_window = 5;
    t.full_attention = {1, 3};
    t.experts = {.count = 4, .per_token = 2, .ffn = 48, .dense_layers = {}, .normalise = true, .bias = true};
    t.experts.router_bias = true;
  }
  if (name == "llama4") {
    t.qk_norm = true;
    t.qk_norm_form = QkNormForm::unweighted;
    t.attention_chunk = 6;
    t.full_attention = {3};
    t.full_attention_rope = false;
    t.experts = {.count = 4, .per_token = 1, .ffn = 48, .shared_ffn = 48, .dense_layers = {0, 2}};
    t.experts.scores = RouterScores::sigmoid;
    t.experts.weighted_inputs = true;
  }
  if (name == "olmo2") {
    t.norms = NormPlaces::after;
    t.qk_norm = true;
    t.qk_norm_form = QkNormForm::all_heads;
  }
}

}  // namespace

Transformer tiny_variant(const std::string& name) {
  Transformer t = tiny_transformer(Family::llama);
  t.name = "tiny-" + name;
  t.kv_heads = 2;
  if (name == "llama") t.output_bias = t.qkv_bias = t.ffn_bias = true;
  if (name == "qwen2") t.qkv_bias = t.tied_embeddings = true;
  if (name == "qwen3") t.qk_norm = true;
  if (name == "mistral") {
    t.sliding_window = 5;
    t.full_attention = {1};
  }
  if (name == "mixtral")
    t.experts = {.count = 4, .per_token = 2, .ffn = 48, .dense_layers = {}, .normalise = true};
  if (name == "qwen2-moe") {
    t.qkv_bias = true;
    t.experts = {
        .count = 6, .per_token = 2, .ffn = 32, .shared_ffn = 64, .shared_gate = true, .dense_layers = {1}};
  }
  if (name == "deepseek-v3") {
    t.kv_heads = t.heads;
    t.head_dim = 12;
    t.latent = {.q_rank = 20, .kv_rank = 16, .rope_dim = 4, .value_dim = 8};
    t.experts = {.count = 8, .per_token = 3, .ffn = 32, .shared_ffn = 32, .dense_layers = {0}};
    t.experts.scores = RouterScores::sigmoid;
    t.experts.normalise = t.experts.balancing_bias = true;
    t.experts.scale = 2.5;
    t.experts.groups = 4;
    t.experts.groups_per_token = 2;
  }
  if (name == "latent") t.latent = {.q_rank = 0, .kv_rank = 16, .rope_dim = 4, .value_dim = 6};
  if (name == "latent") t.kv_heads = t.heads;
  // Gemma 3's layers, with Gemma 2's caps and GLM-4's rotation.
  if (name == "sandwich") {
    t.activation = GateActivation::gelu;
    t.norms = NormPlaces::both;
    t.qk_norm = t.tied_embeddings = true;
    t.sliding_window = 5;
    t.full_attention = {1, 3};
    t.windowed_rope_theta = 100;
    t.rope_dim = 4;
    t.score_width = 12;
    t.attention_softcap = 0.2;
    t.logit_softcap = 5;
    t.embedding_scale = 5.5;
  }
  if (name == "chunked") {  // Llama 4's attention and OLMo 2's norms
    t.norms = NormPlaces::after;
    t.attention_chunk = 6;
    t.full_attention = {3};
    t.full_attention_rope = false;
  }
  vary_simulated(name, t);
  return t;
}

Transformer with_extra_predictions(Transformer t) {
  t.name += "-extra";
  t.extra_predictions = 2;
  t.extra_prediction_weight = 0.3;
  return t;
}

const std::vector<std::string>& variants() {
  static const std::vector<std::string> names = {"llama",     "qwen2",       "qwen3",  "mistral",  "mixtral",
                                                 "qwen2-moe", "deepseek-v3", "latent", "sandwich", "chunked"};
  return names;
}

const std::vector<std::string>& simulated_variants() {
  static const std::vector<std::string> names = {"gemma2-experts", "gpt-oss", "llama4", "olmo2"};
  return names;
}

Chip tiny_chip() {
  Chip chip;
  chip.name = "tiny";
  chip.vendor = "none";
  chip.kind = "cpu";
  for (Format format : {Format::fp32, Format::tf32, Format::bf16, Format::fp16})
    chip.peak_flops[format] = {1e11, "assumed"};
  chip.memory_bytes = {4e9, "assumed"};
  chip.memory_bandwidth = {1e10, "assumed"};
  chip.software.gemm_efficiency = {0.9, "assumed"};
  chip.software.gemm_k_half = {100, "assumed"};
  chip.software.attention_efficiency = {0.5, "assumed"};
  chip.software.attention_s_half = {100, "assumed"};
  chip.software.bandwidth_efficiency = {0.8, "assumed"};
  chip.software.kernel_overhead = {1e-6, "assumed"};
  return chip;
}

Cluster tiny_cluster(int chips) {
  Cluster cluster;
  cluster.name = "tiny";
  NodeGroup group;
  group.name = "all";
  group.nodes = 1;
  group.chip = tiny_chip();
  group.chips_per_node = chips;
  group.inside = {FabricKind::loopback, 1e9, 1e-5};
  cluster.groups.push_back(group);
  build_topology(cluster);
  return cluster;
}

Job tiny_job(Degrees degrees, const Transformer& transformer) {
  Job job;
  job.transformer = transformer;
  job.cluster = tiny_cluster(static_cast<int>(degrees.tp * degrees.pp * degrees.dp));
  job.train.global_batch = 16;
  job.train.micro_batch = 2;
  job.train.sequence = 16;
  job.train.precision = Format::fp32;
  job.strategy = expand(job.transformer, job.train, degrees.tp, degrees.pp, degrees.dp);
  return job;
}

Job tiny_job(Degrees degrees, Family family) { return tiny_job(degrees, tiny_transformer(family)); }

std::vector<Job> every_small_job(Family family) {
  std::vector<Job> jobs;
  for (Degrees d : {Degrees{1, 1, 1},
                    {2, 1, 1},
                    {1, 2, 1},
                    {1, 1, 2},
                    {4, 1, 1},
                    {1, 4, 1},
                    {1, 1, 4},
                    {2, 2, 1},
                    {2, 1, 2},
                    {1, 2, 2}})
    for (Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b})
      for (Recompute recompute : {Recompute::none, Recompute::full})
        for (bool overlap : {false, true}) {
          Job job = tiny_job(d, family);
          job.strategy.schedule = schedule;
          job.strategy.recompute = recompute;
          job.strategy.overlap_gradients = overlap;
          job.strategy.overlap_p2p = overlap;
          job.strategy.p2p_buffers = overlap ? 2 : 1;
          job.strategy.bucket_bytes = 10'000;
          job.fidelity.tensor_parallel = overlap ? CollectiveLevel::fluid : CollectiveLevel::formula;
          jobs.push_back(job);
        }
  return jobs;
}

std::vector<Job> every_expert_job(const Transformer& transformer) {
  struct Division {
    Degrees degrees;
    std::int64_t parts, cut;
  };
  std::vector<Job> jobs;
  for (const Division& d : {Division{{1, 1, 2}, 2, 0},
                            {{1, 1, 4}, 2, 0},
                            {{1, 1, 4}, 4, 0},
                            {{2, 1, 1}, 1, 1},
                            {{2, 1, 1}, 2, 1},
                            {{2, 1, 2}, 2, 2},
                            {{2, 1, 2}, 2, 1},
                            {{4, 1, 1}, 2, 2},
                            {{1, 2, 2}, 2, 0}}) {
    if (transformer.experts.count % d.parts != 0 || transformer.kv_heads % d.degrees.tp != 0) continue;
    for (bool overlap : {false, true}) {
      Job job = tiny_job(d.degrees, transformer);
      for (Stage& stage : job.strategy.templates[0].stages) {
        stage.expert_parallel = d.parts;
        stage.expert_tensor_parallel = d.cut;
      }
      job.strategy.recompute = overlap ? Recompute::none : Recompute::full;
      job.strategy.overlap_gradients = job.strategy.overlap_p2p = overlap;
      job.strategy.bucket_bytes = 10'000;
      if (overlap && d.degrees.pp > 1) job.strategy.schedule = Schedule::zb_h1;
      job.fidelity.tensor_parallel = overlap ? CollectiveLevel::fluid : CollectiveLevel::formula;
      jobs.push_back(job);
    }
  }
  return jobs;
}

std::vector<Job> every_overlapped_expert_job(const Transformer& transformer) {
  struct Division {
    Degrees degrees;
    std::int64_t parts, cut;
    Schedule schedule;
  };
  std::vector<Job> jobs;
  for (const Division& d : {Division{{1, 1, 2}, 2, 0, Schedule::one_f_one_b},
                            {{1, 1, 4}, 4, 0, Schedule::one_f_one_b},
                            {{2, 1, 2}, 2, 1, Schedule::one_f_one_b},
                            {{1, 2, 2}, 2, 0, Schedule::interleaved},
                            {{1, 2, 2}, 2, 0, Schedule::dualpipe_v}}) {
    if (transformer.experts.count % d.parts != 0 || transformer.kv_heads % d.degrees.tp != 0) continue;
    for (bool full : {false, true}) {
      Job job = tiny_job(d.degrees, transformer);
      for (Stage& stage : job.strategy.templates[0].stages) {
        stage.expert_parallel = d.parts;
        stage.expert_tensor_parallel = d.cut;
      }
      use_schedule(job.transformer, job.strategy, d.schedule, standard_chunks(d.schedule));
      job.strategy.overlap_experts = true;
      job.strategy.recompute = full ? Recompute::full : Recompute::none;
      job.strategy.zero = full ? 1 : 0;
      job.strategy.overlap_gradients = !full;
      job.strategy.bucket_bytes = 10'000;
      job.fidelity.tensor_parallel = full ? CollectiveLevel::fluid : CollectiveLevel::formula;
      jobs.push_back(job);
    }
  }
  return jobs;
}

std::vector<Job> every_scheduled_job(Family family) {
  std::vector<Job> jobs;
  const auto add = [&](Job job) {
    for (Recompute recompute : {Recompute::none, Recompute::full})
      for (bool overlap : {false, true}) {
        job.strategy.recompute = recompute;
        job.strategy.overlap_gradients = overlap;
        job.strategy.p2p_buffers = overlap ? 2 : 1;
        job.strategy.bucket_bytes = 10'000;
        job.fidelity.tensor_parallel = overlap ? CollectiveLevel::fluid : CollectiveLevel::formula;
        jobs.push_back(job);
      }
  };
  for (Degrees d : {Degrees{1, 1, 1}, {1, 2, 1}, {1, 4, 1}, {2, 2, 1}, {1, 2, 2}})
    for (Schedule schedule :
         {Schedule::interleaved, Schedule::zb_h1, Schedule::zb_h2, Schedule::zb_v, Schedule::dualpipe_v}) {
      const int chunks = standard_chunks(schedule);
      if (d.pp * chunks > 4) continue;
      Job job = tiny_job(d, family);
      use_schedule(job.transformer, job.strategy, schedule, chunks);
      add(job);
    }
  Job custom = tiny_job({1, 2, 1}, family);
  custom.train.global_batch = 6;
  custom.strategy = expand(custom.transformer, custom.train, 1, 2, 1);
  use_schedule(custom.transformer, custom.strategy,
               parse_csv("0F0,2F0,0F1,2F1,2B0,0B0,2I1,0I1,0W1,2W1,0F2,2F2,2B2,0B2\n"
                         "1F0,1F1,1B0,1I1,1F2,1W1,1B2\n",
                         "test"));
  add(custom);
  return jobs;
}

std::vector<Job> every_divided_job(Family family) {
  std::vector<Job> jobs;
  struct Shape {
    Degrees degrees;
    Schedule schedule;
    int chunks;
  };
  for (const Shape& shape : {Shape{{1, 1, 2}, Schedule::one_f_one_b, 1},
                             {{1, 1, 3}, Schedule::gpipe, 1},
                             {{2, 1, 2}, Schedule::one_f_one_b, 1},
                             {{1, 1, 4}, Schedule::one_f_one_b, 1},
                             {{1, 2, 2}, Schedule::one_f_one_b, 1},
                             {{1, 2, 2}, Schedule::interleaved, 2},
                             {{1, 2, 2}, Schedule::zb_h1, 1},
                             {{1, 2, 2}, Schedule::zb_v, 2},
                             {{1, 2, 2}, Schedule::dualpipe_v, 2}})
    for (int zero = 1; zero <= 3; ++zero)
      for (bool other : {false, true}) {
        Job job = tiny_job({1, 1, 1}, family);
        const Degrees d = shape.degrees;
        if (d.dp == 3) job.train.global_batch = 12;
        job.cluster = tiny_cluster(static_cast<int>(d.tp * d.pp * d.dp));
        job.strategy = expand(job.transformer, job.train, d.tp, d.pp, d.dp);
        use_schedule(job.transformer, job.strategy, shape.schedule, shape.chunks);
        job.strategy.zero = zero;
        job.strategy.shard_over = d.dp == 4 && other ? 2 : 0;
        job.strategy.prefetch = other ? 2 : 0;
        job.strategy.recompute = other ? Recompute::full : Recompute::none;
        job.strategy.overlap_gradients = other;
        job.strategy.bucket_bytes = 10'000;
        jobs.push_back(job);
      }
  return jobs;
}

Cluster with_hosts(Cluster cluster) {
  for (NodeGroup& group : cluster.groups) group.host = Host{1e12, 1e10, group.pcie ? 0 : 1e9};
  build_topology(cluster);
  return cluster;
}

std::vector<Job> every_offloaded_job(Family family) {
  struct Shape {
    Degrees degrees;
    Schedule schedule;
    int zero;
    Offload offload;
  };
  std::vector<Job> jobs;
  for (const Shape& shape : {Shape{{1, 1, 1}, Schedule::one_f_one_b, 0, {1, 0}},
                             {{1, 1, 1}, Schedule::gpipe, 0, {0, 1}},
                             {{2, 1, 1}, Schedule::one_f_one_b, 0, {0.5, 0.5}},
                             {{1, 2, 1}, Schedule::one_f_one_b, 0, {1, 1}},
                             {{1, 2, 1}, Schedule::interleaved, 0, {0.5, 1}},
                             {{1, 2, 1}, Schedule::zb_h1, 0, {0, 1}},
                             {{1, 2, 1}, Schedule::zb_v, 0, {1, 1}},
                             {{1, 1, 2}, Schedule::one_f_one_b, 0, {1, 0.5}},
                             {{1, 1, 2}, Schedule::one_f_one_b, 1, {1, 0}},
                             {{1, 1, 2}, Schedule::one_f_one_b, 1, {0.5, 1}},
                             {{1, 1, 2}, Schedule::one_f_one_b, 2, {1, 1}},
                             {{2, 1, 2}, Schedule::one_f_one_b, 3, {1, 1}},
                             {{1, 2, 2}, Schedule::one_f_one_b, 3, {0.5, 0.5}}})
    for (const bool other : {false, true}) {
      Job job = tiny_job(shape.degrees, family);
      job.cluster = with_hosts(job.cluster);
      use_schedule(job.transformer, job.strategy, shape.schedule, standard_chunks(shape.schedule));
      job.strategy.zero = shape.zero;
      job.strategy.offload = shape.offload;
      job.strategy.recompute = other ? Recompute::full : Recompute::none;
      job.strategy.overlap_gradients = other;
      job.strategy.bucket_bytes = other ? 10'000 : 100'000'000;
      jobs.push_back(job);
    }
  return jobs;
}

std::vector<Job> every_divided_expert_job(const Transformer& transformer) {
  struct Division {
    Degrees degrees;
    std::int64_t parts, cut, shard_over;
  };
  std::vector<Job> jobs;
  for (const Division& d : {Division{{1, 1, 2}, 2, 0, 0},
                            {{1, 1, 4}, 2, 0, 0},
                            {{1, 1, 4}, 2, 0, 2},
                            {{2, 1, 2}, 1, 1, 0},
                            {{2, 1, 2}, 2, 1, 0},
                            {{1, 2, 2}, 2, 0, 0},
                            {{2, 1, 4}, 2, 1, 2}})
    for (int zero = 1; zero <= 3; ++zero) {
      if (transformer.experts.count % d.parts != 0 || transformer.kv_heads % d.degrees.tp != 0) continue;
      Job job = tiny_job(d.degrees, transformer);
      for (Stage& stage : job.strategy.templates[0].stages) {
        stage.expert_parallel = d.parts;
        stage.expert_tensor_parallel = d.cut;
      }
      const bool other = (zero + d.degrees.dp) % 2 == 0;
      job.strategy.zero = zero;
      job.strategy.shard_over = d.shard_over;
      job.strategy.recompute = other ? Recompute::full : Recompute::none;
      job.strategy.overlap_gradients = other;
      job.strategy.bucket_bytes = 10'000;
      if (other && d.degrees.pp > 1) job.strategy.schedule = Schedule::zb_h1;
      job.fidelity.tensor_parallel = other ? CollectiveLevel::fluid : CollectiveLevel::formula;
      jobs.push_back(job);
    }
  return jobs;
}

std::vector<Job> every_job_of_unlike_replicas(Family family) {
  struct Part {
    std::int64_t tp, replicas;
  };
  struct Shape {
    std::int64_t replicas;  // replicas of the pipeline
    std::vector<Part> stages;
  };
  std::vector<Job> jobs;
  for (const Shape& shape : {Shape{1, {{1, 1}, {1, 2}}},
                             {2, {{1, 2}, {1, 1}}},
                             {1, {{2, 1}, {1, 2}}},
                             {2, {{1, 2}, {2, 1}}},
                             {2, {{1, 1}, {2, 2}}},
                             {2, {{1, 4}, {1, 2}}},
                             {1, {{1, 1}, {1, 2}, {1, 1}}},
                             {2, {{1, 2}, {2, 1}, {1, 4}}}})
    for (int i = 0; i < 4; ++i) {
      const auto stages = static_cast<std::int64_t>(shape.stages.size());
      Job job = tiny_job({1, stages, shape.replicas}, family);
      job.strategy.schedule = std::vector<Schedule>{Schedule::one_f_one_b, Schedule::gpipe, Schedule::zb_h1,
                                                    Schedule::one_f_one_b}[static_cast<std::size_t>(i)];
      job.strategy.zero = i;
      job.strategy.overlap_gradients = i % 2 == 1;
      job.strategy.bucket_bytes = 10'000;
      for (std::size_t s = 0; s < shape.stages.size(); ++s) {
        Stage& stage = job.strategy.templates[0].stages[s];
        stage.tensor_parallel = shape.stages[s].tp;
        stage.replicas = shape.stages[s].replicas;
        if (s > 0) stage.resharding = i % 2 == 0 ? Resharding::direct : Resharding::gather;
      }
      job.fidelity.tensor_parallel = i == 1 ? CollectiveLevel::fluid : CollectiveLevel::formula;
      job.cluster = tiny_cluster(static_cast<int>(job.strategy.rank_count()));
      jobs.push_back(job);
    }
  return jobs;
}

namespace {

// Stages of two chunks, so that also what comes back to an earlier stage is resharded.
void add_resharded_chunks(Family family, std::vector<Job>& jobs) {
  for (const std::vector<std::int64_t>& degrees :
       {std::vector<std::int64_t>{1, 2}, {2, 1}, {4, 2}, {1, 4}, {2, 2}})
    for (const Resharding resharding : {Resharding::direct, Resharding::gather})
      for (const Schedule schedule : {Schedule::interleaved, Schedule::zb_v, Schedule::dualpipe_v}) {
        Job job = tiny_job({1, 2, 1}, family);
        use_schedule(job.transformer, job.strategy, schedule, 2);
        for (std::size_t i = 0; i < degrees.size(); ++i)
          job.strategy.templates[0].stages[i].tensor_parallel = degrees[i];
        use_resharding(job.strategy.templates[0], resharding);
        job.fidelity.tensor_parallel =
            schedule == Schedule::zb_v ? CollectiveLevel::fluid : CollectiveLevel::formula;
        job.cluster = tiny_cluster(static_cast<int>(job.strategy.rank_count()));
        jobs.push_back(job);
      }
}

}  // namespace

std::vector<Job> every_resharded_job(Family family) {
  std::vector<Job> jobs;
  add_resharded_chunks(family, jobs);
  for (const std::vector<std::int64_t>& degrees :
       {std::vector<std::int64_t>{1, 2}, {2, 1}, {4, 2}, {1, 4}, {2, 2}, {2, 1, 2}, {1, 4, 2}})
    for (Resharding resharding : {Resharding::direct, Resharding::gather})
      for (Schedule schedule : {Schedule::one_f_one_b, Schedule::gpipe, Schedule::zb_h1}) {
        const auto stages = static_cast<std::int64_t>(degrees.size());
        Job job = tiny_job({1, stages, 1}, family);
        job.strategy.schedule = schedule;
        if (degrees.size() == 2 && degrees[0] + degrees[1] == 3) {  // with two replicas
          job.strategy = expand(job.transformer, job.train, 1, stages, 2);
          job.strategy.zero = schedule == Schedule::gpipe && !job.transformer.tied_embeddings ? 3 : 0;
        }
        for (std::size_t i = 0; i < degrees.size(); ++i) {
          job.strategy.templates[0].stages[i].tensor_parallel = degrees[i];
          if (i > 0) job.strategy.templates[0].stages[i].resharding = resharding;
        }
        job.fidelity.tensor_parallel =
            schedule == Schedule::gpipe ? CollectiveLevel::fluid : CollectiveLevel::formula;
        job.cluster = tiny_cluster(static_cast<int>(job.strategy.rank_count()));
        jobs.push_back(job);
      }
  return jobs;
}

}  // namespace motley::tests
