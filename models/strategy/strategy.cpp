// Checks whether a Strategy is legal, expands degrees into one, and hashes it. Read next:
// models/strategy/strategy_text.cpp, models/compile/compile.hpp.
#include "models/strategy/strategy.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/strategy/partition.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "models/transformer/train_fields.hpp"

namespace motley {
namespace {

// Tokens of a micro-batch, far more than any chip holds; products with two widths still fit an int64.
constexpr std::int64_t kMostTokensAtOnce = std::int64_t{1} << 30;
// Ranks of a stage, more than the chips of any cluster that is read.
constexpr std::int64_t kMostRanksOfStage = std::int64_t{1} << 20;

// Documents of a sequence: each layer's attention is counted document by document.
constexpr std::size_t kMostDocuments = std::size_t{1} << 16;

// Nothing: the checked part is legal.
using Complaint = std::optional<StrategyComplaint>;

// Lists the degrees that divide all three, for hints: "1, 2, 4, 8".
std::string divisors(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t least = 1) {
  constexpr std::int64_t kLargestShown = 65'536;
  std::string list;
  for (std::int64_t degree = least; degree <= std::min({a, b, c, kLargestShown}); ++degree)
    if (a % degree == 0 && b % degree == 0 && c % degree == 0)
      list += (list.empty() ? "" : ", ") + std::to_string(degree);
  return list;
}

Complaint find_in_expert_widths(const Transformer& t, std::int64_t tp) {
  const Experts& e = t.experts;
  if (e.count == 0 || (e.ffn % tp == 0 && e.shared_ffn % tp == 0)) return std::nullopt;
  const std::int64_t shared = e.shared_ffn > 0 ? e.shared_ffn : e.ffn;
  return StrategyComplaint{
      "impossible-degree", "tensor_parallel",
      fmt::format("tensor_parallel {} does not divide the experts' ffn {}{} of `{}`", tp, e.ffn,
                  e.shared_ffn > 0 ? fmt::format(" and shared_ffn {}", e.shared_ffn) : "", t.name),
      "legal: " + divisors(std::gcd(t.heads, t.kv_heads), e.ffn, shared)};
}

Complaint find_in_tensor_parallel(const Transformer& t, std::int64_t tp) {
  if (tp >= 1 && t.heads % tp == 0 && t.kv_heads % tp == 0 && t.ffn % tp == 0)
    return find_in_expert_widths(t, tp);
  return StrategyComplaint{
      "impossible-degree", "tensor_parallel",
      fmt::format("tensor_parallel {} does not divide heads {}, kv_heads {} and ffn {} of `{}`", tp, t.heads,
                  t.kv_heads, t.ffn, t.name),
      "legal: " + divisors(t.heads, t.kv_heads, t.ffn)};
}

// Checks bounds that are far beyond any job, so that later products fit their integers.
Complaint find_in_tokens(const Train& train, std::int64_t micro_batch) {
  if (micro_batch * train.sequence <= kMostTokensAtOnce) return std::nullopt;
  return StrategyComplaint{
      "impossible-batch", "micro_batch",
      fmt::format("a micro-batch of {} sequences of {} tokens", micro_batch, train.sequence),
      fmt::format("at most {} tokens", kMostTokensAtOnce)};
}
Complaint find_in_ranks(std::int64_t tp, std::int64_t copies) {
  if (tp <= kMostRanksOfStage && copies <= kMostRanksOfStage / tp) return std::nullopt;
  return StrategyComplaint{"too-many-ranks", "data_parallel",
                           fmt::format("a stage of {} copies of tensor_parallel {}", copies, tp),
                           fmt::format("at most {} ranks", kMostRanksOfStage)};
}

Complaint find_in_data_parallel(const Train& train, std::int64_t dp) {
  const std::int64_t micro_batches = train.global_batch / train.micro_batch;
  if (dp >= 1 && micro_batches % dp == 0) return std::nullopt;
  return StrategyComplaint{"impossible-batch", "data_parallel",
                           fmt::format("data_parallel {} does not divide the {} micro-batches of a step "
                                       "(global_batch {} / micro_batch {})",
                                       dp, micro_batches, train.global_batch, train.micro_batch),
                           "legal: " + divisors(micro_batches, micro_batches, micro_batches)};
}

// Checks boundaries between stages whose activations are gathered, or whose tensor-parallel degrees differ. `all`: the
// pipeline's virtual stages.
Complaint find_at_boundaries(const Transformer& t, const PipelineTemplate& pipeline,
                             const std::vector<VirtualStage>& all, bool by_rows) {
  for (std::size_t v = 1; v < all.size(); ++v) {
    const int here = all[v - 1].stage, there = all[v].stage;
    if (here == there) continue;
    const Stage &sender = pipeline.stages[at(here)], &receiver = pipeline.stages[at(there)];
    const std::int64_t before = sender.tensor_parallel, after = receiver.tensor_parallel;
    const bool gathers = resharding_between(sender, receiver) == Resharding::gather;
    if (before == after && !gathers) continue;
    if (before % after != 0 && after % before != 0)
      return StrategyComplaint{
          "impossible-resharding", "stages",
          fmt::format("stages {} and {} have tensor_parallel {} and {}", here, there, before, after),
          "of two neighbours, the smaller degree must divide the larger"};
    if (!by_rows && t.hidden % std::max(before, after) != 0)
      return StrategyComplaint{"impossible-resharding", "stages",
                               fmt::format("hidden {} of `{}` is not cut into {} equal parts", t.hidden,
                                           t.name, std::max(before, after)),
                               "degrees that divide it, or `resharding: direct` between equal ones"};
  }
  return std::nullopt;
}

Complaint find_in_context_parallel(const Train& train, std::int64_t cp) {
  if (cp == 1 || (cp > 1 && train.sequence % (2 * cp) == 0)) return std::nullopt;
  return StrategyComplaint{
      "impossible-context", "context_parallel",
      fmt::format("context_parallel {} does not cut a sequence of {} tokens into {} equal chunks, two for "
                  "each rank",
                  cp, train.sequence, 2 * cp),
      "legal: 1" + (train.sequence % 2 == 0
                        ? ", " + divisors(train.sequence / 2, train.sequence / 2, train.sequence / 2, 2)
                        : "")};
}

// Checks stages with different numbers of replicas. `micro_batch`: sequences of each of the pipeline's replicas.
Complaint find_in_replicas(const PipelineTemplate& pipeline, std::int64_t micro_batch, bool by_rows) {
  const auto complaint = [](std::string message, std::string hint, RefusalSite site = RefusalSite::here()) {
    return StrategyComplaint{"impossible-replicas", "stages", std::move(message), std::move(hint), site};
  };
  if (!pipeline.has_unlike_replicas()) return std::nullopt;
  if (by_rows)
    return complaint("sequence_parallel where stages are replicated unlike",
                     "as many replicas of every stage, or `sequence_parallel: false`");
  const std::int64_t sequences = pipeline.replicas * micro_batch;
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    const std::int64_t replicas = pipeline.replicas_of(pipeline.stages[i]);
    if (!pipeline.stages[i].more.empty())
      return complaint(fmt::format("stage {} holds several chunks, and stages are replicated unlike", i),
                       "a schedule with one chunk a stage, or as many replicas of every stage");
    if (sequences % replicas != 0)
      return complaint(fmt::format("{} replicas of stage {} do not divide the {} sequences of a micro-batch "
                                   "({} replicas x micro_batch {})",
                                   replicas, i, sequences, pipeline.replicas, micro_batch),
                       "a larger micro_batch, or fewer replicas of that stage");
    if (i == 0) continue;
    const std::int64_t before = pipeline.replicas_of(pipeline.stages[i - 1]);
    if (before % replicas != 0 && replicas % before != 0)
      return complaint(fmt::format("stages {} and {} have {} and {} replicas", i - 1, i, before, replicas),
                       "of two neighbours, the one must have a multiple of the other's");
  }
  return std::nullopt;
}

Complaint find_in_stages(const Transformer& t, const PipelineTemplate& pipeline, bool by_rows) {
  if (pipeline.stages.empty())
    return StrategyComplaint{"impossible-stages", "stages", "a template without stages",
                             "give at least one stage"};
  std::int64_t next = 0;
  const std::vector<VirtualStage> all = virtual_stages(pipeline);
  for (std::size_t v = 0; v < all.size(); ++v) {
    const VirtualStage& stage = all[v];
    // A first stage with only a frozen embedding would have no backward.
    const bool may_be_empty = all.size() > 1 && ((v == 0 && !t.lora.used()) || v + 1 == all.size());
    if (stage.layers.first != next || stage.layers.last < stage.layers.first ||
        (stage.layers.last == stage.layers.first && !may_be_empty))
      return StrategyComplaint{"impossible-stages", "stages",
                               fmt::format("a stage holds layers {}-{} where layer {} is next",
                                           stage.layers.first, stage.layers.last - 1, next),
                               "stages hold the layers in order, each at least one"};
    next = stage.layers.last;
  }
  if (next != t.layers)
    return StrategyComplaint{"impossible-stages", "stages",
                             fmt::format("the stages hold {} layers, `{}` has {}", next, t.name, t.layers),
                             fmt::format("the last stage must end at layer {}", t.layers - 1)};
  for (const Stage& stage : pipeline.stages) {
    if (auto complaint = find_in_tensor_parallel(t, stage.tensor_parallel)) return complaint;
    if (auto complaint = find_in_ranks(stage.tensor_parallel, pipeline.copies_of(stage))) return complaint;
    if (auto complaint = find_in_expert_parallel(t, pipeline, stage)) return complaint;
    if (!stage.on.empty() && pipeline.replicas_of(stage) % static_cast<std::int64_t>(stage.on.size()) != 0)
      return StrategyComplaint{"uneven-placement", "stages",
                               fmt::format("{} replicas cannot be divided evenly over the {} groups of `on`",
                                           pipeline.replicas_of(stage), stage.on.size()),
                               "as many replicas on each group, or a template for each"};
  }
  return find_at_boundaries(t, pipeline, all, by_rows);
}

Complaint find_in_sharding(const Strategy& strategy) {
  if (strategy.zero == 0 && strategy.shard_over > 0)
    return StrategyComplaint{"impossible-sharding", "shard_over", "`shard_over` where nothing is divided",
                             "`zero: 1`, 2 or 3 says what the replicas divide"};
  if (strategy.reshard_after_forward) return std::nullopt;
  if (strategy.zero < 3)
    return StrategyComplaint{"impossible-sharding", "reshard_after_forward",
                             "`reshard_after_forward: false` where no parameters are gathered for a forward",
                             "`zero: 3` divides parameters; with less they are whole anyway"};
  bool in_flight = strategy.schedule != Schedule::one_f_one_b;
  for (const PipelineTemplate& pipeline : strategy.templates)
    in_flight = in_flight || pipeline.stages.size() > 1;
  if (in_flight)
    return StrategyComplaint{
        "impossible-sharding", "reshard_after_forward",
        "`reshard_after_forward: false` where several micro-batches are in flight: each would "
        "gather parameters of its own",
        "`zero: 2` with `overlap: {parameters: true}` gathers them once a step and keeps them"};
  return std::nullopt;
}

Complaint find_in_offload(const Strategy& strategy) {
  const auto whole = [](const Offload& offload) {
    return offload.optimizer >= 0 && offload.optimizer <= 1 && offload.activations >= 0 &&
           offload.activations <= 1;
  };
  bool legal = whole(strategy.offload);
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const Stage& stage : pipeline.stages) legal = legal && (!stage.offload || whole(*stage.offload));
  if (legal) return std::nullopt;
  return StrategyComplaint{"impossible-offload", "templates", "`offload` shares must be between 0 and 1",
                           "0 moves nothing, 1 moves everything"};
}

// Checks that sequence parallelism can divide the rows over tensor-parallel ranks.
Complaint find_in_rows(const Train& train, const PipelineTemplate& pipeline) {
  const std::int64_t micro_batch = pipeline.micro_batch > 0 ? pipeline.micro_batch : train.micro_batch;
  for (const Stage& stage : pipeline.stages) {
    if (micro_batch * train.sequence / pipeline.context_parallel % stage.tensor_parallel != 0)
      return StrategyComplaint{"impossible-sequence", "sequence_parallel",
                               fmt::format("the {} tokens of a micro-batch cannot be divided evenly over "
                                           "tensor_parallel {}",
                                           micro_batch * train.sequence, stage.tensor_parallel),
                               "a sequence that it divides, or `sequence_parallel: false`"};
    if (stage.resharding == Resharding::gather)
      return StrategyComplaint{"impossible-resharding", "sequence_parallel",
                               "`resharding: gather` is impossible: each rank has only its own rows of the "
                               "activations at a boundary",
                               "leave out `resharding: gather` or `sequence_parallel`"};
  }
  return std::nullopt;
}

Complaint find_in_recompute(const Strategy& strategy, const PipelineTemplate& pipeline) {
  for (const Stage& stage : pipeline.stages)
    if (stage.recompute_layers && stage.recompute.value_or(strategy.recompute) == Recompute::none)
      return StrategyComplaint{
          "impossible-recompute", "recompute_layers",
          fmt::format("`recompute_layers: {}` where nothing is recomputed", *stage.recompute_layers),
          "`recompute: full` or `selective` says what is"};
  return std::nullopt;
}

// A module that no layer of the model has.
Complaint find_in_modules(const Transformer& t, const Recompute& recompute) {
  const auto missing = [&](Module module, std::string_view part) {
    return StrategyComplaint{
        "impossible-recompute", "recompute",
        fmt::format("`recompute` names `{}`, and the model has no {}", name_of(module), part),
        fmt::format("leave out `{}`", name_of(module))};
  };
  if (recompute.has(Module::latent) && !t.latent.used()) return missing(Module::latent, "latent attention");
  if (recompute.has(Module::router) && t.experts.count == 0) return missing(Module::router, "experts");
  if (recompute.has(Module::norms) && !t.norms_inputs() && !t.latent.used())
    return missing(Module::norms, "norms of inputs");
  return std::nullopt;
}

Complaint find_in_templates(const Transformer& t, const Train& train, const Strategy& strategy) {
  if (strategy.templates.empty())
    return StrategyComplaint{"impossible-stages", "templates", "a strategy without templates",
                             "give at least one template"};
  std::int64_t sequences = 0;
  std::string sum;
  for (const PipelineTemplate& pipeline : strategy.templates) {
    if (auto complaint = find_in_stages(t, pipeline, strategy.sequence_parallel)) return complaint;
    if (auto complaint = find_in_context_parallel(train, pipeline.context_parallel)) return complaint;
    const std::int64_t micro_batch = pipeline.micro_batch > 0 ? pipeline.micro_batch : train.micro_batch;
    if (auto complaint = find_in_replicas(pipeline, micro_batch, strategy.sequence_parallel))
      return complaint;
    if (auto complaint = find_in_tokens(train, micro_batch)) return complaint;
    // Once there are too many, more cannot mend it, and the sum could not hold them.
    if (sequences <= train.global_batch)
      sequences += pipeline.replicas * pipeline.micro_batches * micro_batch;
    sum += fmt::format("{}{} replicas x {} micro_batches x micro_batch {}", sum.empty() ? "" : " + ",
                       pipeline.replicas, pipeline.micro_batches, micro_batch);
    if (pipeline.replicas < 1 || pipeline.micro_batches < 1) sequences = -1;  // -1: equal to no global batch
  }
  if (sequences != train.global_batch)
    return StrategyComplaint{"impossible-batch",
                             "micro_batches",
                             fmt::format("{} are not global_batch {}", sum, train.global_batch),
                             {}};
  for (const PipelineTemplate& pipeline : strategy.templates) {
    if (auto complaint = find_in_schedule(strategy, pipeline)) return complaint;
    if (auto complaint = find_in_expert_overlap(strategy, pipeline)) return complaint;
    if (auto complaint = find_in_recompute(strategy, pipeline)) return complaint;
    for (const Stage& stage : pipeline.stages)
      if (auto complaint = find_in_modules(t, stage.recompute.value_or(strategy.recompute))) return complaint;
    if (auto complaint = strategy.sequence_parallel ? find_in_rows(train, pipeline) : std::nullopt)
      return complaint;
  }
  if (auto complaint = find_in_offload(strategy)) return complaint;
  return find_in_sharding(strategy);
}

// Text of a member of Train, for the hash.
template <Worded Word>
std::string hashed(Word word) {
  return std::string(name_of(word));
}
std::string hashed(const std::optional<Format>& format) { return format ? hashed(*format) : ""; }
std::string hashed(const std::vector<std::int64_t>& lengths) {
  return fmt::format("{}", fmt::join(lengths, " "));
}
template <typename Number>
std::string hashed(Number number) {
  return fmt::format("{}", number);
}

void refuse(const Complaint& complaint) {
  if (complaint)
    throw Refusal(Exit::infeasible, complaint->kind, {}, complaint->message, complaint->hint,
                  complaint->site);
}

}  // namespace

std::optional<StrategyComplaint> find_batch_complaint(const Transformer& t, const Train& train) {
  const auto& documents = train.documents;
  const std::int64_t sum = std::accumulate(documents.begin(), documents.end(), std::int64_t{0});
  if (!documents.empty() && sum != train.sequence)
    return StrategyComplaint{
        "impossible-documents", "documents",
        fmt::format("{} documents have {} tokens, a sequence {}", documents.size(), sum, train.sequence),
        "their lengths add up to the sequence, or one length divides it"};
  if (documents.size() > kMostDocuments)
    return StrategyComplaint{"impossible-documents", "documents",
                             fmt::format("{} documents in a sequence", documents.size()),
                             fmt::format("at most {}", kMostDocuments)};
  // Positions begin at 0 in each document.
  const std::int64_t longest =
      documents.empty() ? train.sequence : *std::max_element(documents.begin(), documents.end());
  if (t.learned_positions() && longest > t.max_positions)
    return StrategyComplaint{
        "impossible-sequence", documents.empty() ? "sequence" : "documents",
        fmt::format("{} {} is longer than the {} positions of `{}`",
                    documents.empty() ? "sequence" : "a document of", longest, t.max_positions, t.name),
        fmt::format("at most {}", t.max_positions)};
  if (auto complaint = find_in_tokens(train, train.micro_batch)) return complaint;
  if (train.global_batch % train.micro_batch != 0)
    return StrategyComplaint{
        "impossible-batch", "micro_batch",
        fmt::format("micro_batch {} does not divide global_batch {}", train.micro_batch, train.global_batch),
        "legal: " + divisors(train.global_batch, train.global_batch, train.global_batch)};
  if (t.extra_prediction_weight > 0 && t.extra_predictions == 0)
    return StrategyComplaint{"impossible-extra-predictions", "extra_prediction_weight",
                             fmt::format("`{}` has no modules that predict further tokens", t.name),
                             "`extra_predictions: 1` in the model"};
  if (train.frozen_weights != FrozenWeights::precision && !t.lora.used())
    return StrategyComplaint{
        "nothing-frozen", "frozen_weights",
        fmt::format("frozen_weights {}, but all weights are trained", name_of(train.frozen_weights)),
        "`lora: {rank: 16}`, which freezes them"};
  if (t.trained_extra() > 0 && t.lora.used())
    return StrategyComplaint{
        "impossible-extra-predictions", "extra_prediction_weight",
        "modules that predict further tokens are trained whole, and adapters freeze the rest",
        "the one or the other"};
  return std::nullopt;
}

std::optional<StrategyComplaint> find_complaint(const Transformer& t, const Train& train, std::int64_t tp,
                                                std::int64_t pp, std::int64_t dp, std::int64_t cp) {
  if (auto complaint = find_batch_complaint(t, train)) return complaint;
  if (auto complaint = find_in_tensor_parallel(t, tp)) return complaint;
  if (pp < 1 || pp > t.layers)
    return StrategyComplaint{
        "impossible-degree", "pipeline_parallel",
        fmt::format("pipeline_parallel {} is more than the {} layers of `{}`", pp, t.layers, t.name),
        fmt::format("legal: 1 to {}", t.layers)};
  if (auto complaint = find_in_context_parallel(train, cp)) return complaint;
  if (auto complaint = find_in_data_parallel(train, dp)) return complaint;
  return find_in_ranks(tp, dp * cp);
}

std::optional<StrategyComplaint> find_complaint(const Transformer& t, const Train& train,
                                                const Strategy& strategy) {
  if (auto complaint = find_batch_complaint(t, train)) return complaint;
  return find_in_templates(t, train, strategy);
}

Strategy expand(const Transformer& t, const Train& train, std::int64_t tp, std::int64_t pp, std::int64_t dp,
                std::int64_t cp) {
  refuse(find_complaint(t, train, tp, pp, dp, cp));
  PipelineTemplate pipeline;
  pipeline.context_parallel = cp;
  pipeline.replicas = dp;
  pipeline.micro_batches = train.global_batch / (train.micro_batch * dp);
  std::int64_t next = 0;
  for (std::int64_t layers : even_layers(t.layers, pp)) {
    pipeline.stages.push_back({next, next + layers, tp, {}, {}});
    next += layers;
  }
  Strategy strategy;
  strategy.templates.push_back(std::move(pipeline));
  return strategy;
}

std::int64_t Strategy::rank_count() const {
  std::int64_t count = 0;
  for (const PipelineTemplate& pipeline : templates)
    for (const Stage& stage : pipeline.stages) count += pipeline.copies_of(stage) * stage.tensor_parallel;
  return count;
}

std::string degrees_of(const Strategy& strategy) {
  return fmt::format("tp {} x {}pp {} x dp {}", strategy.tp(),
                     strategy.cp() > 1 ? fmt::format("cp {} x ", strategy.cp()) : "", strategy.pp(),
                     strategy.dp());
}

void validate(const Transformer& t, const Train& train, const Strategy& strategy) {
  refuse(find_complaint(t, train, strategy));
}

std::string strategy_hash(const Transformer& transformer, const Train& train, const Strategy& strategy) {
  // Names and sources do not change what is run.
  Transformer nameless = transformer;
  nameless.name.clear();
  nameless.source.clear();
  const Train standard;
  std::string shape, further;  // shape: fields of every training shape; further: fields that this one also
                               // has
  TrainFields{}.each_of_program([&](const auto& entry) {
    const std::string value = hashed(train.*std::get<0>(entry.members));
    if (!entry.hides_standard)
      shape += fmt::format("{}{} {}", shape.empty() ? "" : " ", entry.key, value);
    else if (differ(entry, train, standard))
      further += fmt::format("{} {}\n", entry.key, value);
  });
  const std::string text = fmt::format("{}\n{}\n{}{}", print(nameless), shape, print(strategy), further);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace motley
