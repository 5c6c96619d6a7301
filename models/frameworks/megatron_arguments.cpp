// What Megatron-LM's arguments say of a model, a training shape and a strategy's options.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/base/index.hpp"
#include "models/base/units.hpp"
#include "models/frameworks/layer_layout.hpp"
#include "models/frameworks/megatron_import.hpp"
#include "models/strategy/strategy_fields.hpp"
#include "models/transformer/train_fields.hpp"
#include "models/transformer/transformer_text.hpp"

namespace motley {
namespace {

[[noreturn]] void refuse_foreign(const SaidSettings& said, const std::string& name, const std::string& why,
                                 const std::string& hint = {}) {
  throw Refusal(Exit::infeasible, "foreign-setting", said.where(name), said.written(name) + why, hint);
}

struct Clash {
  const char *one, *other;
};
// Of each pair at most one may be given.
constexpr std::array kExclusive = {
    Clash{"num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"},
    Clash{"num-layers-per-virtual-pipeline-stage", "pipeline-model-parallel-layout"},
    Clash{"num-virtual-stages-per-pipeline-rank", "pipeline-model-parallel-layout"},
    Clash{"decoder-first-pipeline-num-layers", "pipeline-model-parallel-layout"},
    Clash{"decoder-last-pipeline-num-layers", "pipeline-model-parallel-layout"},
    Clash{"account-for-embedding-in-pipeline-split", "pipeline-model-parallel-layout"},
    Clash{"account-for-loss-in-pipeline-split", "pipeline-model-parallel-layout"},
    Clash{"decoder-first-pipeline-num-layers", "num-layers-per-virtual-pipeline-stage"},
    Clash{"decoder-last-pipeline-num-layers", "num-layers-per-virtual-pipeline-stage"},
    Clash{"fp16", "bf16"},
    Clash{"fp4-format", "fp8-format"},
    Clash{"num-layers", "encoder-num-layers"},
    Clash{"seq-length", "encoder-seq-length"},
    Clash{"train-iters", "train-samples"},
    Clash{"step-batch-size-schedule", "global-batch-size"},
    Clash{"use-torch-fsdp2", "use-distributed-optimizer"},
    Clash{"use-torch-fsdp2", "use-megatron-fsdp"},
    Clash{"data-path", "data-args-path"},
};
// The first needs one of the others.
struct Need {
  const char* name;
  std::array<const char*, 2> others;
};
constexpr std::array kNeeds = {
    Need{"overlap-param-gather", {"use-distributed-optimizer", "use-megatron-fsdp"}},
    Need{"overlap-param-gather", {"overlap-grad-reduce", "overlap-grad-reduce"}},
    Need{"overlap-param-gather-with-optimizer-step", {"overlap-param-gather", "overlap-param-gather"}},
    Need{"tp-comm-overlap", {"sequence-parallel", "sequence-parallel"}},
    Need{"expert-model-parallel-size", {"num-experts", "num-experts"}},
    Need{"num-query-groups", {"group-query-attention", "group-query-attention"}},
    Need{"fp4-param-gather", {"fp4-format", "fp4-format"}},
    Need{"overlap-moe-expert-parallel-comm", {"expert-model-parallel-size", "expert-model-parallel-size"}},
};
// Arguments that Megatron-LM still parses, and then refuses.
constexpr std::array<std::pair<const char*, const char*>, 4> kRemoved = {
    {{"batch-size", "micro-batch-size"},
     {"warmup", "lr-warmup-fraction"},
     {"model-parallel-size", "tensor-model-parallel-size"},
     {"checkpoint-activations", "recompute-granularity"}}};

[[noreturn]] void refuse_clash(const SaidSettings& said, const std::string& name, const std::string& what,
                               const std::string& hint) {
  throw Refusal(Exit::usage, "clashing-settings", said.where(name), what, hint);
}

void read_positions(SaidSettings& said, Transformer& t) {
  const std::string kind = said.choice("position-embedding-type",
                                       {"learned_absolute", "rope", "yarn", "mrope", "relative", "none"});
  const bool rope = kind == "rope" || said.flag("use-rotary-position-embeddings");
  said.flag("no-position-embedding");
  if (!rope && kind != "learned_absolute")
    refuse_foreign(said, "position-embedding-type",
                   fmt::format(" {}: Motley has learned positions and rope", kind));
  const bool swiglu = said.flag("swiglu");
  const bool rms = said.choice("normalization", {"LayerNorm", "RMSNorm"}) == "RMSNorm";
  for (const char* const other : {"squared-relu", "quick-geglu", "openai-gelu"})
    if (said.flag(other)) refuse_foreign(said, other, ": Motley has GELU (tanh form) and SwiGLU");
  if (rope != swiglu || rope != rms)
    refuse_foreign(
        said,
        swiglu ? "swiglu"
        : rms  ? "normalization"
               : "position-embedding-type",
        ": Motley has two families, rope with RMSNorm and SwiGLU, and learned positions with LayerNorm "
        "and GELU",
        "--position-embedding-type rope --normalization RMSNorm --swiglu, or none of them");
  t.family = rope ? Family::llama : Family::gpt2;
  t.rope_theta = static_cast<double>(said.integer("rotary-base", kPositive, 10000));
  said.choice("rope-type", {"rope", "yarn"});
}

void read_biases(SaidSettings& said, Transformer& t) {
  const bool none = said.flag("disable-bias-linear") || said.flag("no-add-bias-linear");
  const bool qkv = said.flag("add-qkv-bias");
  if (t.family == Family::llama) {
    t.output_bias = t.ffn_bias = !none;
    t.qkv_bias = qkv || !none;
  } else if (none) {
    refuse_foreign(said, "disable-bias-linear", ": a model with learned positions has biases in Motley");
  }
}

void read_heads(SaidSettings& said, Transformer& t) {
  t.heads = said.needed_integer("num-attention-heads", kWidth);
  t.kv_heads = t.heads;
  if (said.flag("group-query-attention")) t.kv_heads = said.integer("num-query-groups", kWidth, 1);
  const auto width = said.integer("kv-channels", kWidth);
  t.head_dim = width.value_or(t.hidden / t.heads);
  const bool qk_norm = said.flag("qk-layernorm");
  if (!said.flag("multi-latent-attention")) {
    t.qk_norm = qk_norm;
    return;
  }
  t.latent.q_rank = said.integer("q-lora-rank", kWidth, 0);
  t.latent.kv_rank = said.integer("kv-lora-rank", kWidth, 32);
  t.latent.rope_dim = said.integer("qk-pos-emb-head-dim", kWidth, 64);
  t.latent.value_dim = said.integer("v-head-dim", kWidth, 128);
  t.head_dim = said.integer("qk-head-dim", kWidth, 128) + t.latent.rope_dim;
  t.kv_heads = t.heads;
}

void read_window(SaidSettings& said, Transformer& t) {
  const auto window = said.text("window-size");
  if (!window) return;
  std::string text = *window;
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  std::int64_t before = 0, after = 0;
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos || read_integer(text.substr(0, comma), before) != NumberFault::none ||
      read_integer(text.substr(comma + 1), after) != NumberFault::none || before < 0 || after != 0 ||
      before >= kRows.most)
    refuse_foreign(said, "window-size",
                   fmt::format(" {}: Motley has windows of tokens before the query", shortened(*window)),
                   "as 4095,0");
  t.sliding_window = before + 1;
  const auto pattern = said.text("window-attn-skip-freq");
  if (!pattern) return;
  const std::vector<bool> windowed = [&] {
    std::vector<bool> values =
        parse_layer_pattern(*pattern, said.where("window-attn-skip-freq"), t.layers, 1);
    if (pattern->find('[') == std::string::npos) values.flip();  // every N-th layer sees all tokens
    return values;
  }();
  for (std::int64_t layer = 0; layer < t.layers; ++layer)
    if (!windowed[at(layer)]) t.full_attention.push_back(layer);
}

void read_experts(SaidSettings& said, Transformer& t) {
  if (!said.has("num-experts")) return;
  Experts& e = t.experts;
  e.count = said.needed_integer("num-experts", kWidth);
  e.per_token = said.integer("moe-router-topk", kWidth, 2);
  e.ffn = said.integer("moe-ffn-hidden-size", kRows, t.ffn);
  e.shared_ffn = said.integer("moe-shared-expert-intermediate-size", kRows, 0);
  e.shared_gate = said.flag("moe-shared-expert-gate");
  e.scores = said.choice("moe-router-score-function", {"softmax", "sigmoid"}) == "sigmoid"
                 ? RouterScores::sigmoid
                 : RouterScores::softmax;
  const bool before = said.flag("moe-router-pre-softmax");
  e.normalise = e.scores == RouterScores::sigmoid ? e.per_token > 1 : !before;
  e.scale = said.number("moe-router-topk-scaling-factor", Sign::positive, 1.0);
  e.balancing_bias = said.flag("moe-router-enable-expert-bias");
  e.groups = said.integer("moe-router-num-groups", kWidth, 1);
  e.groups_per_token = said.integer("moe-router-group-topk", kWidth, 1);
  said.flag("moe-grouped-gemm");
  if (said.has("moe-token-dispatcher-type"))
    said.choice("moe-token-dispatcher-type", {"alltoall", "flex", "allgather"});
  const auto pattern = said.text("moe-layer-freq");
  if (!pattern) return;
  const auto with_experts = parse_layer_pattern(*pattern, said.where("moe-layer-freq"), t.layers, 0);
  for (std::int64_t layer = 0; layer < t.layers; ++layer)
    if (!with_experts[at(layer)]) e.dense_layers.push_back(layer);
}

void read_formats(SaidSettings& said, Train& train) {
  const bool bf16 = said.flag("bf16"), fp16 = said.flag("fp16");
  train.precision = bf16 ? Format::bf16 : fp16 ? Format::fp16 : Format::fp32;
  const bool in_fp32 = said.flag("accumulate-allreduce-grads-in-fp32"),
             in_bf16 = said.flag("grad-reduce-in-bf16");
  train.gradients = Format::fp32;
  if (bf16 && in_bf16) train.gradients = Format::bf16;
  if (fp16 && !in_fp32) train.gradients = Format::fp16;
  if (said.has("fp8-format")) {
    const std::string format = said.choice("fp8-format", {"hybrid", "e4m3"});
    const std::string recipe = said.choice("fp8-recipe", {"delayed", "tensorwise", "blockwise", "mxfp8"});
    train.matmuls = recipe == "mxfp8" ? Format::mxfp8 : Format::fp8;
  }
  if (said.has("fp4-format")) {
    said.choice("fp4-format", {"e2m1"});
    said.choice("fp4-recipe", {"nvfp4"});
    train.matmuls = Format::nvfp4;
  }
}

// Zero's degree, from Megatron's own optimizer or from one of the two implementations of FSDP.
int read_zero(SaidSettings& said, Strategy& strategy) {
  const bool optimizer = said.flag("use-distributed-optimizer");
  if (said.flag("use-torch-fsdp2")) {
    strategy.reshard_after_forward = !said.flag("torch-fsdp2-no-reshard-after-forward");
    return 3;
  }
  if (!said.flag("use-megatron-fsdp")) return optimizer ? 1 : 0;
  const std::string what = said.choice("data-parallel-sharding-strategy",
                                       {"optim_grads_params", "no_shard", "optim", "optim_grads"});
  if (what == "optim_grads") strategy.reduce_gradients = ReduceGradients::last;
  return what == "no_shard" ? 0 : what == "optim" ? 1 : what == "optim_grads" ? 2 : 3;
}

Module read_module(const SaidSettings& said, const std::string& word) {
  if (word == "core_attn") return Module::attention;
  if (word == "layernorm") return Module::norms;
  if (word == "mla_up_proj") return Module::latent;
  if (word == "moe_act") return Module::activation;
  refuse_foreign(said, "recompute-modules",
                 fmt::format(" {}: Motley recomputes no such module", shortened(word)),
                 "it has core_attn, layernorm, mla_up_proj and moe_act");
}

}  // namespace

void refuse_megatron_clashes(const SaidSettings& said) {
  for (const auto& [name, instead] : kRemoved)
    if (said.has(name))
      refuse_clash(said, name, fmt::format("{} is no longer an argument of Megatron-LM", said.written(name)),
                   "use " + said.written(instead));
  for (const Clash& clash : kExclusive) {
    if (!said.has(clash.one) || !said.has(clash.other)) continue;
    const Location one = said.where(clash.one), other = said.where(clash.other);
    const bool is_later = std::tie(one.line, one.column) > std::tie(other.line, other.column);
    refuse_clash(said, is_later ? clash.one : clash.other,
                 fmt::format("{} stands beside {}, and one excludes the other",
                             said.written(is_later ? clash.one : clash.other),
                             said.written(is_later ? clash.other : clash.one)),
                 "keep one of them");
  }
  for (const Need& need : kNeeds)
    if (said.has(need.name) && !said.has(need.others[0]) && !said.has(need.others[1]))
      refuse_clash(
          said, need.name,
          fmt::format("{} stands without {}", said.written(need.name), said.written(need.others[0])),
          fmt::format("add {}, or leave {} out", said.written(need.others[0]), said.written(need.name)));
}

Transformer read_megatron_model(SaidSettings& said, const std::string& name) {
  Transformer t;
  t.name = name;
  if (said.has("hybrid-layer-pattern") || said.has("hybrid-override-pattern"))
    refuse_foreign(said,
                   said.has("hybrid-layer-pattern") ? "hybrid-layer-pattern" : "hybrid-override-pattern",
                   ": Motley has Transformers only");
  const bool encoder = said.has("encoder-num-layers");
  t.layers = said.needed_integer(encoder ? "encoder-num-layers" : "num-layers", kLayers);
  t.hidden = said.needed_integer("hidden-size", kWidth);
  read_positions(said, t);
  read_heads(said, t);
  t.max_positions = said.needed_integer("max-position-embeddings", kRows);
  // Megatron-LM keeps the parameters of SwiGLU's three matrices near those of two of width 4 C.
  const std::int64_t usual = t.gated() ? t.hidden * 8 / 3 / 64 * 64 : 4 * t.hidden;
  t.ffn = said.integer("ffn-hidden-size", kRows, std::max<std::int64_t>(usual, 1));
  if (!said.has("vocab-size") && !said.has("padded-vocab-size"))
    said.refuse_missing("vocab-size", "the tokenizer's own number of tokens is not in the text");
  t.vocabulary = said.needed_integer(said.has("vocab-size") ? "vocab-size" : "padded-vocab-size", kRows);
  said.integer("make-vocab-size-divisible-by", kPositive);
  said.text("tokenizer-type");
  t.tied_embeddings = !said.flag("untie-embeddings-and-output-weights");
  t.norm_epsilon = said.number("norm-epsilon", Sign::positive, 1e-5);
  read_biases(said, t);
  read_window(said, t);
  read_experts(said, t);
  t.extra_predictions = said.integer("mtp-num-layers", {0, 16}, 0);
  const double weight = said.number("mtp-loss-scaling-factor", Sign::positive, 0.1);
  if (t.extra_predictions > 0) t.extra_prediction_weight = weight;
  for (const char* const rate :
       {"attention-dropout", "hidden-dropout"})  // another rate than 0 is listed as ignored
    if (said.only_text(rate) == "0") said.text(rate);
  t.source = "imported from arguments of Megatron-LM";
  refuse_impossible(t, said.where(encoder ? "encoder-num-layers" : "num-layers"));
  return t;
}

Train read_megatron_train(SaidSettings& said) {
  Train train;
  train.sequence =
      said.needed_integer(said.has("encoder-seq-length") ? "encoder-seq-length" : "seq-length", kTokens);
  train.micro_batch = said.needed_integer("micro-batch-size", kBatch);
  train.global_batch = said.integer("global-batch-size", kBatch, 0);
  train.steps = said.integer("train-iters", kBatch, train.steps);
  read_formats(said, train);
  if (said.has("optimizer")) said.choice("optimizer", {"adam"});
  train.learning_rate = said.number("lr", Sign::positive, train.learning_rate);
  train.beta1 = said.number("adam-beta1", Sign::not_negative, 0.9);
  train.beta2 = said.number("adam-beta2", Sign::not_negative, 0.999);
  train.epsilon = said.number("adam-eps", Sign::positive, 1e-8);
  train.weight_decay = said.number("weight-decay", Sign::not_negative, 0.01);
  train.seed = static_cast<std::uint64_t>(said.integer("seed", {}, 1234));
  return train;
}

Strategy read_megatron_options(SaidSettings& said, const Train& train, const ImportedForm& form) {
  Strategy s;
  const bool no_overlap = said.flag("no-overlap-p2p-communication");
  s.schedule = form.interleaved ? Schedule::interleaved : Schedule::one_f_one_b;
  if (form.pipelines) s.overlap_p2p = form.interleaved && !no_overlap;
  s.zero = read_zero(said, s);
  if (const auto parts = said.integer("num-distributed-optimizer-instances", kDegree); parts && *parts > 1) {
    if (form.context_parallel > 1 || form.replicas % *parts != 0 || s.zero == 0)
      refuse_foreign(
          said, "num-distributed-optimizer-instances",
          fmt::format(" {}: Motley divides over equal parts of the {} replicas", *parts, form.replicas));
    if (form.replicas / *parts == 1)
      s.zero = 0;
    else
      s.shard_over = form.replicas / *parts;
  }
  s.overlap_gradients = said.flag("overlap-grad-reduce");
  s.overlap_parameters = said.flag("overlap-param-gather");
  const std::int64_t replicas = form.replicas * form.context_parallel;
  if (s.overlap_gradients)  // Megatron-LM's own default where no bucket is given
    s.bucket_bytes =
        bytes_of(train.gradients) * said.integer("ddp-bucket-size", {1, std::int64_t{1} << 40},
                                                 std::max<std::int64_t>(40'000'000, 1'000'000 * replicas));
  s.sequence_parallel = said.flag("sequence-parallel") && form.tensor_parallel > 1;
  if (said.has("cp-comm-type")) {
    const std::vector<std::string> kinds = said.words("cp-comm-type");
    for (const std::string& kind : kinds)
      if (kind != kinds[0] || (kind != "p2p" && kind != "allgather"))
        refuse_foreign(said, "cp-comm-type",
                       fmt::format(" {}: Motley has p2p and allgather, one for all layers", kind));
    if (form.context_parallel > 1 && !kinds.empty()) s.overlap_context = kinds[0] == "p2p";
  }
  s.overlap_experts = said.flag("overlap-moe-expert-parallel-comm");
  if (said.has("num-experts")) s.expert_weights = ExpertWeights::activation;
  if (said.flag("optimizer-cpu-offload"))
    s.offload.optimizer = said.number("optimizer-offload-fraction", Sign::not_negative, 1.0);
  if (s.offload.optimizer > 1) refuse_foreign(said, "optimizer-offload-fraction", ": a share is at most 1");
  return s;
}

void read_megatron_recompute(SaidSettings& said, Strategy& strategy, std::vector<Stage>& stages) {
  const bool selective = said.flag("recompute-activations");
  if (!selective && !said.has("recompute-granularity")) return;
  const std::string what =
      selective ? "selective" : said.choice("recompute-granularity", {"selective", "full"});
  if (what == "selective") {
    if (said.has("recompute-method"))
      refuse_clash(said, "recompute-method",
                   fmt::format("{} stands beside selective recomputation", said.written("recompute-method")),
                   "leave it out, or recompute in full");
    std::vector<std::string> modules = said.words("recompute-modules");
    if (!said.has("recompute-modules")) modules = {"core_attn"};
    for (const std::string& word : modules) strategy.recompute.add(read_module(said, word));
    return;
  }
  if (!said.has("recompute-method"))
    said.refuse_missing("recompute-method", "full recomputation needs it: uniform or block");
  const std::string method = said.choice("recompute-method", {"uniform", "block"});
  strategy.recompute = Recompute::full;
  if (method == "block") {
    const std::int64_t layers = said.needed_integer("recompute-num-layers", kDegree);
    for (Stage& stage : stages) stage.recompute_layers = layers;
  } else if (said.has("recompute-num-layers") && said.integer("recompute-num-layers", kDegree, 1) > 1) {
    refuse_foreign(said, "recompute-num-layers",
                   ": Motley keeps the input of each layer, not of every few layers",
                   said.written("recompute-num-layers") + " 1");
  }
}

void list_ignored(const SaidSettings& said, std::vector<IgnoredSetting>& ignored) {
  for (const std::string& name : said.not_read())
    ignored.push_back({said.written(name), said.where(name), "a scenario has no key for it"});
}

}  // namespace motley
