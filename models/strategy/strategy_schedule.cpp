// Lays layers over a schedule's virtual stages, and checks a schedule's conditions on a strategy's stages.
#include <fmt/format.h>

#include <algorithm>

#include "models/base/refusal.hpp"
#include "models/strategy/strategy.hpp"
#include "models/strategy/strategy_complaint.hpp"

namespace motley {
namespace {

std::vector<int> stages_of(const PipelineTemplate& pipeline) {
  std::vector<int> stages;
  for (const VirtualStage& each : virtual_stages(pipeline)) stages.push_back(each.stage);
  return stages;
}

// The number of layers, with embedding and head if they count as a layer each.
std::int64_t counted_layers(const Transformer& t, EndLayers ends) {
  return t.layers + (ends == EndLayers::counted ? 2 : 0);
}

bool has_lone_ends(const PipelineTemplate& pipeline) {
  for (const VirtualStage& stage : virtual_stages(pipeline))
    if (stage.layers.first == stage.layers.last) return true;
  return false;
}

void refuse_too_many(const Transformer& t, std::int64_t count, EndLayers ends) {
  if (count <= counted_layers(t, ends)) return;
  throw Refusal(Exit::infeasible, "impossible-schedule", {},
                fmt::format("{} virtual stages are more than the {} layers of `{}`", count, t.layers, t.name),
                count <= t.layers + 2
                    ? "`end_layers: counted`, fewer virtual_stages, or a smaller pipeline_parallel"
                    : "fewer virtual_stages, or a smaller pipeline_parallel");
}

void spread_layers(const Transformer& t, PipelineTemplate& pipeline, const std::vector<int>& placed,
                   EndLayers ends) {
  const auto count = static_cast<std::int64_t>(placed.size());
  const std::int64_t all = counted_layers(t, ends), end = ends == EndLayers::counted ? 1 : 0;
  refuse_too_many(t, count, ends);
  for (const int stage : placed)
    if (stage < 0 || stage >= static_cast<int>(pipeline.stages.size()))
      throw Refusal(Exit::infeasible, "impossible-schedule", {},
                    fmt::format("the schedule is of {} ranks or more, the pipeline has {} stages", stage + 1,
                                pipeline.stages.size()),
                    "pipeline_parallel is the number of lines of a schedule's CSV");
  std::vector<bool> begun(pipeline.stages.size());
  for (Stage& stage : pipeline.stages) stage.more.clear();
  std::int64_t next = 0;
  for (std::int64_t v = 0; v < count; ++v) {
    const auto index = static_cast<std::size_t>(placed[static_cast<std::size_t>(v)]);
    Layers layers{next, next + all / count + (v < all % count ? 1 : 0)};
    if (v == 0) layers.last -= end;
    if (v == count - 1) layers.last -= end;
    next = layers.last;
    Stage& stage = pipeline.stages[index];
    if (begun[index]) {
      stage.more.push_back(layers);
      continue;
    }
    begun[index] = true;
    stage.first_layer = layers.first;
    stage.last_layer = layers.last;
  }
}

}  // namespace

Resharding resharding_between(const Stage& before, const Stage& after) {
  const bool equal = before.tensor_parallel == after.tensor_parallel;
  return after.resharding.value_or(equal ? Resharding::direct : Resharding::gather);
}

bool has_stage_before(const PipelineTemplate& pipeline, int stage) {
  const std::vector<int> stages = stages_of(pipeline);
  for (std::size_t v = 1; v < stages.size(); ++v)
    if (stages[v] == stage && stages[v - 1] != stage) return true;
  return false;
}

void use_resharding(PipelineTemplate& pipeline, Resharding resharding) {
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i)
    if (has_stage_before(pipeline, static_cast<int>(i))) pipeline.stages[i].resharding = resharding;
}

std::vector<VirtualStage> virtual_stages(const PipelineTemplate& pipeline) {
  std::vector<VirtualStage> all;
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    const Stage& stage = pipeline.stages[i];
    all.push_back({static_cast<int>(i), {stage.first_layer, stage.last_layer}});
    for (const Layers& layers : stage.more) all.push_back({static_cast<int>(i), layers});
  }
  std::stable_sort(all.begin(), all.end(), [](const VirtualStage& a, const VirtualStage& b) {
    return a.layers.first < b.layers.first;
  });
  return all;
}

void use_schedule(const Transformer& t, Strategy& strategy, Schedule schedule, int chunks, EndLayers ends) {
  strategy.schedule = schedule;
  strategy.timetable = {};
  for (PipelineTemplate& pipeline : strategy.templates) {
    const auto ranks = static_cast<std::int64_t>(pipeline.stages.size());
    refuse_too_many(t, ranks * chunks, ends);
    spread_layers(t, pipeline, placement(schedule, {static_cast<int>(ranks), chunks, 1}), ends);
  }
}

void use_schedule(const Transformer& t, Strategy& strategy, Timetable timetable) {
  strategy.schedule = Schedule::custom;
  for (PipelineTemplate& pipeline : strategy.templates)
    spread_layers(t, pipeline, placement(timetable), EndLayers::besides);
  strategy.timetable = std::move(timetable);
}

std::optional<StrategyComplaint> find_in_schedule(const Strategy& strategy,
                                                  const PipelineTemplate& pipeline) {
  const auto complaint = [](std::string message, std::string hint, RefusalSite site = RefusalSite::here()) {
    return StrategyComplaint{"impossible-schedule", "schedule", std::move(message), std::move(hint), site};
  };
  const auto stages = stages_of(pipeline);
  const int ranks = static_cast<int>(pipeline.stages.size());
  const int micro_batches = static_cast<int>(pipeline.micro_batches);
  const bool simple = strategy.schedule == Schedule::gpipe || strategy.schedule == Schedule::one_f_one_b;
  if (!strategy.overlap_p2p && !simple)
    return complaint(
        fmt::format("{} without `overlap: {{p2p: true}}`: each rank would delay its next compute until "
                    "its neighbour accepts a transfer",
                    name_of(strategy.schedule)),
        "`p2p: false` is for gpipe and 1f1b");
  const bool whole_backwards = simple || strategy.schedule == Schedule::interleaved;
  if (!whole_backwards && has_lone_ends(pipeline))
    return complaint(
        fmt::format("{} where the embedding or the head is alone in a chunk: a chunk without layers "
                    "has no backward of a layer to split",
                    name_of(strategy.schedule)),
        "gpipe, 1f1b or interleaved, or at least one layer in every chunk");
  if (strategy.schedule == Schedule::custom) {
    if (const auto message = find_complaint(strategy.timetable, micro_batches))
      return complaint("the schedule's CSV: " + *message,
                       "`motley show schedule --csv` writes one that is sound");
    if (placement(strategy.timetable) != stages)
      return complaint("the stages do not hold the virtual stages that the schedule has them run",
                       "virtual stages count chunks of layers from the first layer on");
    if (!evaluate(strategy.timetable, {}, strategy.p2p_buffers))
      return complaint(
          fmt::format("with p2p_buffers {} the ranks of the schedule wait for each other for ever",
                      strategy.p2p_buffers),
          "more p2p_buffers");
    return std::nullopt;
  }
  const PipelineShape shape{ranks, static_cast<int>(stages.size()) / ranks, micro_batches};
  if (const auto message = find_complaint(strategy.schedule, shape))
    return complaint(*message, "the schedules: " + fmt::format("{}", fmt::join(schedule_names(), ", ")));
  if (placement(strategy.schedule, shape) != stages)
    return complaint(
        fmt::format("the order of layers over the stages is not the one that {} needs: {}",
                    name_of(strategy.schedule), fmt::join(placement(strategy.schedule, shape), " ")),
        "each stage lists its chunks, as `layers: [0-3, 12-15]`");
  return std::nullopt;
}

}  // namespace motley
