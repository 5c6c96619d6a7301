// What makes a Strategy legal, its short form and its hash. Reading and printing are in
// strategy_text.cpp. Read next: models/compile.hpp.
#include "models/strategy.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "models/partition.hpp"
#include "models/refusal.hpp"
#include "models/scenario.hpp"
#include "models/strategy_complaint.hpp"

namespace motley {
namespace {

using Found = std::optional<StrategyComplaint>;

// "1, 2, 4, 8": the degrees that divide all three, as many as help.
std::string divisors(std::int64_t a, std::int64_t b, std::int64_t c) {
  constexpr std::int64_t kLargestShown = 65'536;
  std::string list;
  for (std::int64_t degree = 1; degree <= std::min({a, b, c, kLargestShown}); ++degree)
    if (a % degree == 0 && b % degree == 0 && c % degree == 0)
      list += (list.empty() ? "" : ", ") + std::to_string(degree);
  return list;
}

Found find_in_expert_widths(const Transformer& t, std::int64_t tp) {
  const Experts& e = t.experts;
  if (e.count == 0 || (e.ffn % tp == 0 && e.shared_ffn % tp == 0)) return std::nullopt;
  const std::int64_t shared = e.shared_ffn > 0 ? e.shared_ffn : e.ffn;
  return StrategyComplaint{
      "impossible-degree", "tensor_parallel",
      fmt::format("tensor_parallel {} does not divide the experts' ffn {}{} of `{}`", tp, e.ffn,
                  e.shared_ffn > 0 ? fmt::format(" and shared_ffn {}", e.shared_ffn) : "", t.name),
      "legal: " + divisors(std::gcd(t.heads, t.kv_heads), e.ffn, shared)};
}

Found find_in_tensor_parallel(const Transformer& t, std::int64_t tp) {
  if (tp >= 1 && t.heads % tp == 0 && t.kv_heads % tp == 0 && t.ffn % tp == 0)
    return find_in_expert_widths(t, tp);
  return StrategyComplaint{
      "impossible-degree", "tensor_parallel",
      fmt::format("tensor_parallel {} does not divide heads {}, kv_heads {} and ffn {} of `{}`", tp, t.heads,
                  t.kv_heads, t.ffn, t.name),
      "legal: " + divisors(t.heads, t.kv_heads, t.ffn)};
}

Found find_in_data_parallel(const Train& train, std::int64_t dp) {
  const std::int64_t micro_batches = train.global_batch / train.micro_batch;
  if (dp >= 1 && micro_batches % dp == 0) return std::nullopt;
  return StrategyComplaint{"impossible-batch", "data_parallel",
                           fmt::format("data_parallel {} does not divide the {} micro-batches of a step "
                                       "(global_batch {} / micro_batch {})",
                                       dp, micro_batches, train.global_batch, train.micro_batch),
                           "legal: " + divisors(micro_batches, micro_batches, micro_batches)};
}

Found find_in_stages(const Transformer& t, const PipelineTemplate& pipeline) {
  if (pipeline.stages.empty())
    return StrategyComplaint{"impossible-stages", "stages", "a template without stages",
                             "give at least one stage"};
  std::int64_t next = 0;
  for (const VirtualStage& stage : virtual_stages(pipeline)) {
    if (stage.layers.first != next || stage.layers.last <= stage.layers.first)
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
    if (stage.tensor_parallel != pipeline.stages[0].tensor_parallel)
      return StrategyComplaint{
          "unequal-tensor-parallel", "stages",
          fmt::format("stages of tensor_parallel {} and {} in one pipeline: this version does not "
                      "reshard activations between unequal stages",
                      pipeline.stages[0].tensor_parallel, stage.tensor_parallel),
          "give every stage the same tensor_parallel"};
    if (auto found = find_in_tensor_parallel(t, stage.tensor_parallel)) return found;
    if (auto found = find_in_expert_parallel(t, pipeline, stage)) return found;
    if (!stage.on.empty() && pipeline.replicas % static_cast<std::int64_t>(stage.on.size()) != 0)
      return StrategyComplaint{"uneven-placement", "stages",
                               fmt::format("{} replicas cannot be divided evenly over the {} groups of `on`",
                                           pipeline.replicas, stage.on.size()),
                               "as many replicas on each group, or a template for each"};
  }
  return std::nullopt;
}

Found find_in_templates(const Transformer& t, const Train& train, const Strategy& strategy) {
  if (strategy.templates.empty())
    return StrategyComplaint{"impossible-stages", "templates", "a strategy without templates",
                             "give at least one template"};
  std::int64_t sequences = 0;
  std::string sum;
  for (const PipelineTemplate& pipeline : strategy.templates) {
    if (auto found = find_in_stages(t, pipeline)) return found;
    const std::int64_t micro_batch = pipeline.micro_batch > 0 ? pipeline.micro_batch : train.micro_batch;
    sequences += pipeline.replicas * pipeline.micro_batches * micro_batch;
    sum += fmt::format("{}{} replicas x {} micro_batches x micro_batch {}", sum.empty() ? "" : " + ",
                       pipeline.replicas, pipeline.micro_batches, micro_batch);
    if (pipeline.replicas < 1 || pipeline.micro_batches < 1) sequences = -1;
  }
  if (sequences != train.global_batch)
    return StrategyComplaint{"impossible-batch",
                             "micro_batches",
                             fmt::format("{} are not global_batch {}", sum, train.global_batch),
                             {}};
  for (const PipelineTemplate& pipeline : strategy.templates)
    if (auto found = find_in_schedule(strategy, pipeline)) return found;
  return std::nullopt;
}

void refuse(const Found& found) {
  if (found) throw Refusal(Exit::infeasible, found->kind, {}, found->message, found->hint);
}

}  // namespace

std::optional<StrategyComplaint> find_batch_complaint(const Transformer& t, const Train& train) {
  if (t.learned_positions() && train.sequence > t.max_positions)
    return StrategyComplaint{"impossible-sequence", "sequence",
                             fmt::format("sequence {} is longer than the {} positions of `{}`",
                                         train.sequence, t.max_positions, t.name),
                             fmt::format("at most {}", t.max_positions)};
  if (train.global_batch % train.micro_batch != 0)
    return StrategyComplaint{
        "impossible-batch", "micro_batch",
        fmt::format("micro_batch {} does not divide global_batch {}", train.micro_batch, train.global_batch),
        "legal: " + divisors(train.global_batch, train.global_batch, train.global_batch)};
  return std::nullopt;
}

std::optional<StrategyComplaint> find_complaint(const Transformer& t, const Train& train, std::int64_t tp,
                                                std::int64_t pp, std::int64_t dp) {
  if (auto found = find_batch_complaint(t, train)) return found;
  if (auto found = find_in_tensor_parallel(t, tp)) return found;
  if (pp < 1 || pp > t.layers)
    return StrategyComplaint{
        "impossible-degree", "pipeline_parallel",
        fmt::format("pipeline_parallel {} is more than the {} layers of `{}`", pp, t.layers, t.name),
        fmt::format("legal: 1 to {}", t.layers)};
  return find_in_data_parallel(train, dp);
}

std::optional<StrategyComplaint> find_complaint(const Transformer& t, const Train& train,
                                                const Strategy& strategy) {
  if (auto found = find_batch_complaint(t, train)) return found;
  return find_in_templates(t, train, strategy);
}

Strategy expand(const Transformer& t, const Train& train, std::int64_t tp, std::int64_t pp, std::int64_t dp) {
  refuse(find_complaint(t, train, tp, pp, dp));
  PipelineTemplate pipeline;
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
    for (const Stage& stage : pipeline.stages) count += pipeline.replicas * stage.tensor_parallel;
  return count;
}

void validate(const Transformer& t, const Train& train, const Strategy& strategy) {
  refuse(find_complaint(t, train, strategy));
}

std::string strategy_hash(const Transformer& transformer, const Train& train, const Strategy& strategy) {
  // Names and sources say who is meant, not what is run; learning rate, seed, steps and text do
  // not change the Program.
  Transformer nameless = transformer;
  nameless.name.clear();
  nameless.source.clear();
  const std::string text =
      fmt::format("{}\nglobal_batch {} micro_batch {} sequence {} precision {} gradients {}\n{}",
                  print(nameless), train.global_batch, train.micro_batch, train.sequence,
                  name_of(train.precision), name_of(train.gradients), print(strategy)) +
      (train.matmuls ? fmt::format("matmuls {}\n", name_of(*train.matmuls)) : "") +
      (train.expert_skew > 0 ? fmt::format("expert_skew {}\n", train.expert_skew) : "") +
      (train.expert_room > 0 ? fmt::format("expert_room {}\n", train.expert_room) : "");
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace motley
