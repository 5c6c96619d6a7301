// Checks whether a stage's experts can be divided over its ranks: Megatron-LM's folding, where the ranks for expert
// parts and expert cuts are the stage's tensor-parallel and data-parallel ranks together (arXiv:2504.14960). Read
// next: models/compile/experts.cpp.
#include <fmt/format.h>

#include "models/strategy/strategy_complaint.hpp"

namespace motley {
namespace {

StrategyComplaint impossible(std::string message, std::string hint, RefusalSite site = RefusalSite::here()) {
  return {"impossible-expert-degree", "stages", std::move(message), std::move(hint), site};
}

}  // namespace

std::optional<StrategyComplaint> find_in_expert_parallel(const Transformer& t,
                                                         const PipelineTemplate& pipeline,
                                                         const Stage& stage) {
  const std::int64_t parts = stage.expert_parallel, cut = stage.expert_cut(), tp = stage.tensor_parallel;
  if (parts == 1 && cut == tp) return std::nullopt;
  if (t.experts.count == 0)
    return impossible(fmt::format("`{}` has no experts to divide", t.name),
                      "leave `expert_parallel` and `expert_tensor_parallel` out");
  if (t.experts.count % parts != 0)
    return impossible(fmt::format("expert_parallel {} does not divide the {} experts of `{}`", parts,
                                  t.experts.count, t.name),
                      "every rank holds as many experts");
  if (tp % cut != 0 || t.experts.ffn % cut != 0)
    return impossible(
        fmt::format("expert_tensor_parallel {} does not divide tensor_parallel {} and the experts' "
                    "ffn {}",
                    cut, tp, t.experts.ffn),
        "experts are cut as the rest is, or less");
  const std::int64_t ranks = pipeline.copies_of(stage) * tp;
  if (ranks % (parts * cut) != 0)
    return impossible(
        fmt::format("expert_parallel {} x expert_tensor_parallel {} does not divide the {} ranks of "
                    "a stage ({} replicas x {}tensor_parallel {})",
                    parts, cut, ranks, pipeline.replicas_of(stage),
                    pipeline.context_parallel > 1
                        ? fmt::format("context_parallel {} x ", pipeline.context_parallel)
                        : "",
                    tp),
        "a stage's experts are divided over its own ranks");
  return std::nullopt;
}

std::optional<StrategyComplaint> find_in_expert_overlap(const Strategy& strategy,
                                                        const PipelineTemplate& pipeline) {
  if (!strategy.overlap_experts) return std::nullopt;
  const bool alone = pipeline.stages.size() == 1 && strategy.schedule == Schedule::one_f_one_b;
  if (!alone && strategy.schedule != Schedule::interleaved && strategy.schedule != Schedule::dualpipe_v)
    return StrategyComplaint{
        "impossible-schedule", "schedule",
        fmt::format(
            "`overlap: {{experts: true}}` with {}: a forward and a backward at the same time would make each "
            "stage wait for the next stage",
            name_of(strategy.schedule)),
        "interleaved or dualpipe-v; 1f1b where a pipeline has one stage"};
  if (strategy.zero >= 2)
    return StrategyComplaint{
        "impossible-sharding", "zero",
        fmt::format("`overlap: {{experts: true}}` with `zero: {}`: parameters are gathered in the "
                    "order of layers, but with this overlap computes run in another order",
                    strategy.zero),
        "`zero: 1`, or without that overlap"};
  bool offloads = strategy.offload != Offload{};
  for (const Stage& stage : pipeline.stages)
    offloads = offloads || stage.offload.value_or(Offload{}) != Offload{};
  if (offloads)
    return StrategyComplaint{
        "impossible-offload", "templates",
        "`overlap: {experts: true}` with `offload`: copies are made in the order of layers, but with "
        "this overlap computes run in another order",
        "one of the two"};
  return std::nullopt;
}

}  // namespace motley
