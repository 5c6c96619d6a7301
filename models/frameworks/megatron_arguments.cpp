// What Megatron-LM's arguments say of a model, a training shape and a strategy's options.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/units.hpp"
#include "models/frameworks/layer_layout.hpp"
#include "models/frameworks/megatron_import.hpp"
#include "models/strategy/strategy_fields.hpp"
#include "models/transformer/train_fields.hpp"
#include "models/transformer/transformer_text.hpp"

namespace motley {
namespace {

[[noreturn]] void refuse_foreign(const WrittenSettings& settings, const std::string& name,
                                 const std::string& why, const std::string& hint = {},
                                 RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::infeasible, "foreign-setting", settings.where(name), settings.as_written(name) + why,
                hint, site);
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
    Need{"optimizer-cpu-offload", {"use-precision-aware-optimizer", "use-precision-aware-optimizer"}},
    Need{"use-precision-aware-optimizer", {"use-distributed-optimizer", "use-megatron-fsdp"}},
    Need{"fp4-param-gather", {"fp4-format", "fp4-format"}},
    Need{"overlap-moe-expert-parallel-comm", {"expert-model-parallel-size", "expert-model-parallel-size"}},
};
// Arguments that Megatron-LM still parses, and then refuses.
constexpr std::array<std::pair<const char*, const char*>, 4> kRemoved = {
    {{"batch-size", "micro-batch-size"},
     {"warmup", "lr-warmup-fraction"},
     {"model-parallel-size", "tensor-model-parallel-size"},
     {"checkpoint-activations", "recompute-granularity"}}};

[[noreturn]] void refuse_clash(const WrittenSettings& settings, const std::string& name,
                               const std::string& what, const std::string& hint,
                               RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "clashing-settings", settings.where(name), what, hint, site);
}

void read_positions(WrittenSettings& settings, Transformer& t) {
  const std::string kind = settings.choice("position-embedding-type",
                                           {"learned_absolute", "rope", "yarn", "mrope", "relative", "none"});
  const bool rope = kind == "rope" || settings.flag("use-rotary-position-embeddings");
  settings.flag("no-position-embedding");
  if (!rope && kind != "learned_absolute")
    refuse_foreign(settings, "position-embedding-type",
                   fmt::format(" {}: Motley has learned positions and rope", kind));
  const bool swiglu = settings.flag("swiglu");
  const bool rms = settings.choice("normalization", {"LayerNorm", "RMSNorm"}) == "RMSNorm";
  for (const char* const other : {"squared-relu", "quick-geglu", "openai-gelu"})
    if (settings.flag(other)) refuse_foreign(settings, other, ": Motley has GELU (tanh form) and SwiGLU");
  if (rope != swiglu || rope != rms)
    refuse_foreign(
        settings,
        swiglu ? "swiglu"
        : rms  ? "normalization"
               : "position-embedding-type",
        ": Motley has two families, rope with RMSNorm and SwiGLU, and learned positions with LayerNorm "
        "and GELU",
        "--position-embedding-type rope --normalization RMSNorm --swiglu, or none of them");
  t.family = rope ? Family::llama : Family::gpt2;
  t.rope_theta = static_cast<double>(settings.integer("rotary-base", kPositive, 10000));
  settings.choice("rope-type", {"rope", "yarn"});
}

void read_biases(WrittenSettings& settings, Transformer& t) {
  const bool none = settings.flag("disable-bias-linear") || settings.flag("no-add-bias-linear");
  const bool qkv = settings.flag("add-qkv-bias");
  if (t.family == Family::llama) {
    t.output_bias = t.ffn_bias = !none;
    t.qkv_bias = qkv || !none;
  } else if (none) {
    refuse_foreign(settings, "disable-bias-linear", ": a model with learned positions has biases in Motley");
  }
}

void read_heads(WrittenSettings& settings, Transformer& t) {
  t.heads = settings.needed_integer("num-attention-heads", kWidth);
  t.kv_heads = t.heads;
  if (settings.flag("group-query-attention")) t.kv_heads = settings.integer("num-query-groups", kWidth, 1);
  const auto width = settings.integer("kv-channels", kWidth);
  t.head_dim = width.value_or(t.hidden / t.heads);
  const bool qk_norm = settings.flag("qk-layernorm");
  if (!settings.flag("multi-latent-attention")) {
    t.qk_norm = qk_norm;
    return;
  }
  t.latent.q_rank = settings.integer("q-lora-rank", kWidth, 0);
  t.latent.kv_rank = settings.integer("kv-lora-rank", kWidth, 32);
  t.latent.rope_dim = settings.integer("qk-pos-emb-head-dim", kWidth, 64);
  t.latent.value_dim = settings.integer("v-head-dim", kWidth, 128);
  t.head_dim = settings.integer("qk-head-dim", kWidth, 128) + t.latent.rope_dim;
  t.kv_heads = t.heads;
}

void read_window(WrittenSettings& settings, Transformer& t) {
  const auto window = settings.text("window-size");
  if (!window) return;
  std::string text = *window;
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  std::int64_t before = 0, after = 0;
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos || read_integer(text.substr(0, comma), before) != NumberFault::none ||
      read_integer(text.substr(comma + 1), after) != NumberFault::none || before < 0 || after != 0 ||
      before >= kRows.most)
    refuse_foreign(settings, "window-size",
                   fmt::format(" {}: Motley has windows of tokens before the query", shortened(*window)),
                   "as 4095,0");
  t.sliding_window = before + 1;
  const auto pattern = settings.text("window-attn-skip-freq");
  if (!pattern) return;
  const std::vector<bool> windowed = [&] {
    std::vector<bool> values =
        parse_layer_pattern(*pattern, settings.where("window-attn-skip-freq"), t.layers, 1);
    if (pattern->find('[') == std::string::npos) values.flip();  // every N-th layer sees all tokens
    return values;
  }();
  for (std::int64_t layer = 0; layer < t.layers; ++layer)
    if (!windowed[at(layer)]) t.full_attention.push_back(layer);
}

void read_experts(WrittenSettings& settings, Transformer& t) {
  if (!settings.has("num-experts")) return;
  Experts& e = t.experts;
  e.count = settings.needed_integer("num-experts", kWidth);
  e.per_token = settings.integer("moe-router-topk", kWidth, 2);
  e.ffn = settings.integer("moe-ffn-hidden-size", kRows, t.ffn);
  e.shared_ffn = settings.integer("moe-shared-expert-intermediate-size", kRows, 0);
  e.shared_gate = settings.flag("moe-shared-expert-gate");
  e.scores = settings.choice("moe-router-score-function", {"softmax", "sigmoid"}) == "sigmoid"
                 ? RouterScores::sigmoid
                 : RouterScores::softmax;
  const bool before = settings.flag("moe-router-pre-softmax");
  e.normalise = e.scores == RouterScores::sigmoid ? e.per_token > 1 : !before;
  e.scale = settings.number("moe-router-topk-scaling-factor", Sign::positive, 1.0);
  e.balancing_bias = settings.flag("moe-router-enable-expert-bias");
  e.groups = settings.integer("moe-router-num-groups", kWidth, 1);
  e.groups_per_token = settings.integer("moe-router-group-topk", kWidth, 1);
  settings.flag("moe-grouped-gemm");
  if (settings.has("moe-token-dispatcher-type"))
    settings.choice("moe-token-dispatcher-type", {"alltoall", "flex", "allgather"});
  const auto pattern = settings.text("moe-layer-freq");
  if (!pattern) return;
  const auto with_experts = parse_layer_pattern(*pattern, settings.where("moe-layer-freq"), t.layers, 0);
  for (std::int64_t layer = 0; layer < t.layers; ++layer)
    if (!with_experts[at(layer)]) e.dense_layers.push_back(layer);
}

void read_formats(WrittenSettings& settings, Train& train) {
  const bool bf16 = settings.flag("bf16"), fp16 = settings.flag("fp16");
  train.precision = bf16 ? Format::bf16 : fp16 ? Format::fp16 : Format::fp32;
  const bool in_fp32 = settings.flag("accumulate-allreduce-grads-in-fp32"),
             in_bf16 = settings.flag("grad-reduce-in-bf16");
  train.gradients = Format::fp32;
  if (bf16 && in_bf16) train.gradients = Format::bf16;
  if (fp16 && !in_fp32) train.gradients = Format::fp16;
  if (settings.has("fp8-format")) {
    const std::string format = settings.choice("fp8-format", {"hybrid", "e4m3"});
    const std::string recipe = settings.choice("fp8-recipe", {"delayed", "tensorwise", "blockwise", "mxfp8"});
    train.matmuls = recipe == "mxfp8" ? Format::mxfp8 : Format::fp8;
  }
  if (settings.has("fp4-format")) {
    settings.choice("fp4-format", {"e2m1"});
    settings.choice("fp4-recipe", {"nvfp4"});
    train.matmuls = Format::nvfp4;
  }
}

// Zero's degree, from Megatron's own optimizer or from one of the two implementations of FSDP.
int read_zero(WrittenSettings& settings, Strategy& strategy) {
  const bool optimizer = settings.flag("use-distributed-optimizer");
  if (settings.flag("use-torch-fsdp2")) {
    strategy.reshard_after_forward = !settings.flag("torch-fsdp2-no-reshard-after-forward");
    return 3;
  }
  if (!settings.flag("use-megatron-fsdp")) return optimizer ? 1 : 0;
  const std::string what = settings.choice("data-parallel-sharding-strategy",
                                           {"optim_grads_params", "no_shard", "optim", "optim_grads"});
  return what == "no_shard" ? 0 : what == "optim" ? 1 : what == "optim_grads" ? 2 : 3;
}

Module read_module(const WrittenSettings& settings, const std::string& word) {
  if (word == "core_attn") return Module::attention;
  if (word == "layernorm") return Module::norms;
  if (word == "mla_up_proj") return Module::latent;
  if (word == "moe_act") return Module::activation;
  refuse_foreign(settings, "recompute-modules",
                 fmt::format(" {}: Motley recomputes no such module", shortened(word)),
                 "it has core_attn, layernorm, mla_up_proj and moe_act");
}

}  // namespace

void refuse_megatron_clashes(const WrittenSettings& settings) {
  for (const auto& [name, instead] : kRemoved)
    if (settings.has(name))
      refuse_clash(settings, name,
                   fmt::format("{} is no longer an argument of Megatron-LM", settings.as_written(name)),
                   "use " + settings.as_written(instead));
  for (const Clash& clash : kExclusive) {
    if (!settings.has(clash.one) || !settings.has(clash.other)) continue;
    const Location one = settings.where(clash.one), other = settings.where(clash.other);
    const bool is_later = std::tie(one.line, one.column) > std::tie(other.line, other.column);
    refuse_clash(settings, is_later ? clash.one : clash.other,
                 fmt::format("{} stands beside {}, and one excludes the other",
                             settings.as_written(is_later ? clash.one : clash.other),
                             settings.as_written(is_later ? clash.other : clash.one)),
                 "keep one of them");
  }
  for (const Need& need : kNeeds)
    if (settings.has(need.name) && !settings.has(need.others[0]) && !settings.has(need.others[1]))
      refuse_clash(settings, need.name,
                   fmt::format("{} stands without {}", settings.as_written(need.name),
                               settings.as_written(need.others[0])),
                   fmt::format("add {}, or leave {} out", settings.as_written(need.others[0]),
                               settings.as_written(need.name)));
}

Transformer read_megatron_model(WrittenSettings& settings, const std::string& name) {
  Transformer t;
  t.name = name;
  if (settings.has("hybrid-layer-pattern") || settings.has("hybrid-override-pattern"))
    refuse_foreign(settings,
                   settings.has("hybrid-layer-pattern") ? "hybrid-layer-pattern" : "hybrid-override-pattern",
                   ": Motley has Transformers only");
  const bool encoder = settings.has("encoder-num-layers");
  t.layers = settings.needed_integer(encoder ? "encoder-num-layers" : "num-layers", kLayers);
  t.hidden = settings.needed_integer("hidden-size", kWidth);
  read_positions(settings, t);
  read_heads(settings, t);
  t.max_positions = settings.needed_integer("max-position-embeddings", kRows);
  // Megatron-LM keeps the parameters of SwiGLU's three matrices near those of two of width 4 C.
  const std::int64_t usual = t.gated() ? t.hidden * 8 / 3 / 64 * 64 : 4 * t.hidden;
  t.ffn = settings.integer("ffn-hidden-size", kRows, std::max<std::int64_t>(usual, 1));
  if (!settings.has("vocab-size") && !settings.has("padded-vocab-size"))
    settings.refuse_missing("vocab-size", "the tokenizer's own number of tokens is not in the text");
  t.vocabulary =
      settings.needed_integer(settings.has("vocab-size") ? "vocab-size" : "padded-vocab-size", kRows);
  settings.integer("make-vocab-size-divisible-by", kPositive);
  settings.text("tokenizer-type");
  t.tied_embeddings = !settings.flag("untie-embeddings-and-output-weights");
  t.norm_epsilon = settings.number("norm-epsilon", Sign::positive, 1e-5);
  read_biases(settings, t);
  read_window(settings, t);
  read_experts(settings, t);
  if (t.experts.count > 0 && t.ffn_bias)
    refuse_foreign(settings, "num-experts", ": experts have no biases in Motley", "--disable-bias-linear");
  t.extra_predictions = settings.integer("mtp-num-layers", {0, 16}, 0);
  const double weight = settings.number("mtp-loss-scaling-factor", Sign::positive, 0.1);
  if (t.extra_predictions > 0) t.extra_prediction_weight = weight;
  for (const char* const rate :
       {"attention-dropout", "hidden-dropout"})  // another rate than 0 is listed as ignored
    if (settings.only_text(rate) == "0") settings.text(rate);
  t.source = "imported from arguments of Megatron-LM";
  refuse_impossible(t, settings.where(encoder ? "encoder-num-layers" : "num-layers"));
  return t;
}

Train read_megatron_train(WrittenSettings& settings) {
  Train train;
  train.sequence = settings.needed_integer(
      settings.has("encoder-seq-length") ? "encoder-seq-length" : "seq-length", kTokens);
  train.micro_batch = settings.needed_integer("micro-batch-size", kBatch);
  train.global_batch = settings.integer("global-batch-size", kBatch, 0);
  train.steps = settings.integer("train-iters", kBatch, train.steps);
  read_formats(settings, train);
  if (settings.has("optimizer")) settings.choice("optimizer", {"adam"});
  train.learning_rate = settings.number("lr", Sign::positive, train.learning_rate);
  train.beta1 = settings.number("adam-beta1", Sign::not_negative, 0.9);
  train.beta2 = settings.number("adam-beta2", Sign::not_negative, 0.999);
  train.epsilon = settings.number("adam-eps", Sign::positive, 1e-8);
  train.weight_decay = settings.number("weight-decay", Sign::not_negative, 0.01);
  train.seed = static_cast<std::uint64_t>(settings.integer("seed", {}, 1234));
  return train;
}

Strategy read_megatron_options(WrittenSettings& settings, const Train& train, const ImportedForm& form) {
  Strategy s;
  const bool no_overlap = settings.flag("no-overlap-p2p-communication");
  s.schedule = form.interleaved ? Schedule::interleaved : Schedule::one_f_one_b;
  if (form.pipelines) s.overlap_p2p = form.interleaved && !no_overlap;
  s.zero = read_zero(settings, s);
  if (const auto parts = settings.integer("num-distributed-optimizer-instances", kDegree);
      parts && *parts > 1) {
    if (form.context_parallel > 1 || form.replicas % *parts != 0 || s.zero == 0)
      refuse_foreign(
          settings, "num-distributed-optimizer-instances",
          fmt::format(" {}: Motley divides over equal parts of the {} replicas", *parts, form.replicas));
    if (form.replicas / *parts == 1)
      s.zero = 0;
    else
      s.shard_over = form.replicas / *parts;
  }
  s.overlap_gradients = settings.flag("overlap-grad-reduce");
  s.overlap_parameters = settings.flag("overlap-param-gather");
  const std::int64_t replicas = form.replicas * form.context_parallel;
  s.sequence_parallel = settings.flag("sequence-parallel") && form.tensor_parallel > 1;
  if (settings.has("cp-comm-type")) {
    const std::vector<std::string> kinds = settings.words("cp-comm-type");
    for (const std::string& kind : kinds)
      if (kind != kinds[0] || (kind != "p2p" && kind != "allgather"))
        refuse_foreign(settings, "cp-comm-type",
                       fmt::format(" {}: Motley has p2p and allgather, one for all layers", kind));
    if (form.context_parallel > 1 && !kinds.empty()) s.overlap_context = kinds[0] == "p2p";
  }
  s.overlap_experts = settings.flag("overlap-moe-expert-parallel-comm");
  if (settings.has("num-experts")) s.expert_weights = ExpertWeights::activation;
  settings.flag("use-precision-aware-optimizer");
  if (settings.flag("optimizer-cpu-offload"))
    s.offload.optimizer = settings.number("optimizer-offload-fraction", Sign::not_negative, 1.0);
  if (s.overlap_gradients || (s.offload.optimizer > 0 && settings.has("ddp-bucket-size")))
    s.bucket_bytes = bytes_of(train.gradients) *  // Megatron-LM's own default where no bucket is given
                     settings.integer("ddp-bucket-size", {1, std::int64_t{1} << 40},
                                      std::max<std::int64_t>(40'000'000, 1'000'000 * replicas));
  if (s.offload.optimizer > 1)
    refuse_foreign(settings, "optimizer-offload-fraction", ": a share is at most 1");
  return s;
}

void read_megatron_recompute(WrittenSettings& settings, Strategy& strategy, std::vector<Stage>& stages) {
  const bool selective = settings.flag("recompute-activations");
  if (!selective && !settings.has("recompute-granularity")) return;
  const std::string what =
      selective ? "selective" : settings.choice("recompute-granularity", {"selective", "full"});
  if (what == "selective") {
    if (settings.has("recompute-method"))
      refuse_clash(
          settings, "recompute-method",
          fmt::format("{} stands beside selective recomputation", settings.as_written("recompute-method")),
          "leave it out, or recompute in full");
    std::vector<std::string> modules = settings.words("recompute-modules");
    if (!settings.has("recompute-modules")) modules = {"core_attn"};
    for (const std::string& word : modules) strategy.recompute.add(read_module(settings, word));
    return;
  }
  if (!settings.has("recompute-method"))
    settings.refuse_missing("recompute-method", "full recomputation needs it: uniform or block");
  const std::string method = settings.choice("recompute-method", {"uniform", "block"});
  strategy.recompute = Recompute::full;
  if (method == "block") {
    const std::int64_t layers = settings.needed_integer("recompute-num-layers", kDegree);
    for (Stage& stage : stages) stage.recompute_layers = layers;
  } else if (settings.has("recompute-num-layers") &&
             settings.integer("recompute-num-layers", kDegree, 1) > 1) {
    refuse_foreign(settings, "recompute-num-layers",
                   ": Motley keeps the input of each layer, not of every few layers",
                   settings.as_written("recompute-num-layers") + " 1");
  }
}

void list_ignored(const WrittenSettings& settings, std::vector<IgnoredSetting>& ignored) {
  for (const std::string& name : settings.not_read())
    ignored.push_back({settings.as_written(name), settings.where(name), "a scenario has no key for it"});
}

}  // namespace motley
