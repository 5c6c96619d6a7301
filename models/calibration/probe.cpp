#include "models/calibration/probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/base/index.hpp"

namespace motley {
namespace {

// Draws from one generator alone: the distributions of the standard library differ from one library to another.
class Draw {
 public:
  explicit Draw(std::mt19937_64& random) : random_(random) {}
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(random_() % at_least_one(count));
  }
  bool one_in(std::int64_t count) { return below(count) == 0; }
  // Equal shares for each doubling, rounded to a multiple of `step`.
  std::int64_t log_uniform(std::int64_t least, std::int64_t most, std::int64_t step) {
    const double share = static_cast<double>(random_() >> 11U) / 9007199254740992.0;  // 2^53
    const double value =
        static_cast<double>(least) * std::pow(static_cast<double>(most) / static_cast<double>(least), share);
    return std::max(step, static_cast<std::int64_t>(std::llround(value / static_cast<double>(step))) * step);
  }
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[at(below(static_cast<std::int64_t>(values.size())))];
  }

 private:
  static std::uint64_t at_least_one(std::int64_t count) {
    return count > 0 ? static_cast<std::uint64_t>(count) : 1;
  }
  std::mt19937_64& random_;
};

Transformer draw_dense(const ProbeRange& range, Draw& draw) {
  Transformer model;
  model.family = draw.one_in(2) ? Family::gpt2 : Family::llama;
  model.name = name_of(model.family);
  model.head_dim = draw.one_of<std::int64_t>({16, 32, 64, 128});
  const std::int64_t cut = std::max<std::int64_t>(32, model.head_dim);
  model.hidden = draw.log_uniform(std::max(range.least_hidden, cut), range.most_hidden, cut);
  model.heads = model.kv_heads = model.hidden / model.head_dim;
  model.ffn = model.hidden * draw.one_of<std::int64_t>({2, 3, 4});
  model.vocabulary = draw.log_uniform(range.least_vocabulary, range.most_vocabulary, 2);
  model.layers = 1 + draw.below(3);
  model.tied_embeddings = model.family == Family::gpt2;
  if (model.family == Family::gpt2) return model;
  if (model.heads % 2 == 0 && draw.one_in(2)) model.kv_heads = model.heads / 2;
  if (draw.one_in(3)) model.qkv_bias = model.output_bias = model.ffn_bias = true;
  if (draw.one_in(3)) model.qk_norm = true;
  return model;
}

void add_experts(Transformer& model, Draw& draw) {
  model.name = "experts";
  model.experts.count = draw.one_of<std::int64_t>({4, 8, 16});
  model.experts.per_token = draw.one_of<std::int64_t>({1, 2, 4});
  model.experts.ffn = std::max<std::int64_t>(16, model.ffn / draw.one_of<std::int64_t>({1, 2, 4}));
  model.experts.normalise = true;
  if (draw.one_in(2)) {
    model.experts.shared_ffn = model.experts.ffn;
    model.experts.shared_gate = draw.one_in(2);
  }
  if (draw.one_in(3)) {
    model.experts.scores = RouterScores::sigmoid;
    model.experts.balancing_bias = true;
  }
}

void add_latent(Transformer& model, Draw& draw) {
  model.name = "latent";
  model.qkv_bias = model.output_bias = model.ffn_bias = model.qk_norm = false;
  model.kv_heads = model.heads;
  model.latent.kv_rank = model.hidden / 2;
  model.latent.rope_dim = model.head_dim / 2;
  model.latent.value_dim = model.head_dim / 2;
  model.latent.q_rank = draw.one_in(2) ? model.hidden / 2 : 0;
}

double flops_of_step(const Transformer& model, const Train& train) {
  const double tokens = static_cast<double>(train.micro_batch * train.sequence);
  return 6 * tokens * static_cast<double>(parameter_count(model)) +
         12 * tokens * static_cast<double>(model.hidden * model.layers * train.sequence);
}

// How a probe's job is cut: over two ranks, by heads, by tokens, by experts or by parameters, or not at all.
struct Degrees {
  std::int64_t tp = 1, cp = 1, dp = 1;
  int zero = 0;
};
Degrees draw_degrees(const Job& job, Draw& draw) {
  Degrees degrees;
  const bool can_cut = job.transformer.kv_heads % 2 == 0 && job.transformer.vocabulary % 2 == 0;
  if (can_cut && draw.one_in(3)) {
    degrees.tp = 2;
  } else if (!job.transformer.latent.used() && draw.one_in(4)) {
    degrees.cp = 2;
  } else if (job.transformer.experts.count > 0 && draw.one_in(2)) {
    degrees.dp = 2;
  } else if (draw.one_in(8)) {
    degrees.dp = 2;
    degrees.zero = 3;
  }
  return degrees;
}

}  // namespace

Probe draw_probe(const ProbeRange& range, const Chip& chip, std::mt19937_64& random) {
  Draw draw(random);
  Probe probe;
  Job& job = probe.job;
  job.train.precision = Format::fp32;
  for (;;) {
    job.transformer = draw_dense(range, draw);
    if (job.transformer.family == Family::llama && draw.one_in(2))
      add_experts(job.transformer, draw);
    else if (job.transformer.family == Family::llama && draw.one_in(4))
      add_latent(job.transformer, draw);
    const std::int64_t rows = draw.log_uniform(range.least_rows, range.most_rows, 16);
    job.train.micro_batch = draw.one_of<std::int64_t>({1, 2, 4, 8});
    job.train.sequence = std::max<std::int64_t>(16, rows / job.train.micro_batch / 16 * 16);
    if (flops_of_step(job.transformer, job.train) <= range.most_flops) break;
  }
  job.transformer.max_positions = job.train.sequence;
  if (job.transformer.family == Family::llama && !job.transformer.latent.used() && draw.one_in(4))
    job.transformer.sliding_window = job.train.sequence / 2;
  const Degrees degrees = draw_degrees(job, draw);
  job.train.global_batch = job.train.micro_batch * degrees.dp;
  job.strategy = expand(job.transformer, job.train, degrees.tp, 1, degrees.dp, degrees.cp);
  job.strategy.sequence_parallel = degrees.tp > 1 && draw.one_in(2);
  job.strategy.zero = degrees.zero;
  if (degrees.dp > 1 && degrees.zero == 0)
    for (Stage& stage : job.strategy.templates[0].stages) stage.expert_parallel = degrees.dp;
  if (job.transformer.experts.count > 0 && draw.one_in(3))
    job.strategy.expert_weights = ExpertWeights::activation;
  NodeGroup node;
  node.name = "probe";
  node.nodes = 1;
  node.chip = chip;
  node.chips_per_node = static_cast<int>(degrees.tp * degrees.cp * degrees.dp);
  node.inside = {FabricKind::loopback, 1e9, 1e-5};
  job.cluster.name = "probe";
  job.cluster.groups = {node};
  build_topology(job.cluster);
  probe.name = fmt::format("{} {} x {}, {} x {} tokens, tp {}, cp {}, ep {}", job.transformer.name,
                           job.transformer.hidden, job.transformer.layers, job.train.micro_batch,
                           job.train.sequence, degrees.tp, degrees.cp, degrees.dp);
  return probe;
}

}  // namespace motley
