#include "models/plan/memory_repair.hpp"

#include <algorithm>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/planned_recomputes.hpp"

namespace motley {
namespace {

constexpr double kLittle = 0.04;  // of a chip's memory, that a stage lacks at most

std::int64_t longest_chunk(const Stage& stage) {
  std::int64_t longest = stage.last_layer - stage.first_layer;
  for (const Layers& more : stage.more) longest = std::max(longest, more.last - more.first);
  return longest;
}

// One more layer of each chunk; where all recompute already, in the next heavier way. False: there is nothing more.
bool recompute_one_more(Stage& stage, const Recompute& of_all, const std::vector<Recompute>& recomputes) {
  const Recompute now = stage.recompute.value_or(of_all);
  const std::int64_t longest = longest_chunk(stage);
  if (now == Recompute::none) {
    const bool has_modules = recomputes.size() > kPlannedRecomputes.size();
    stage.recompute = has_modules ? recomputes.at(1) : Recompute::full;
    stage.recompute_layers = 1;
    return longest > 0;
  }
  if (stage.recompute_layers && *stage.recompute_layers < longest) {
    ++*stage.recompute_layers;
    return true;
  }
  const auto place = std::find(recomputes.begin(), recomputes.end(), now);
  if (place == recomputes.end() || now == Recompute::full) return false;
  const bool is_light = now.modules != 0 && place + 1 != recomputes.end() && (place + 1)->modules != 0 &&
                        *(place + 1) != Recompute::selective;
  stage.recompute = is_light ? *(place + 1) : Recompute::full;
  return true;
}

Stage& stage_of(Strategy& strategy, int index) {
  std::size_t left = at(index);
  for (PipelineTemplate& pipeline : strategy.templates) {
    if (left < pipeline.stages.size()) return pipeline.stages[left];
    left -= pipeline.stages.size();
  }
  MOTLEY_CHECK(false);
  return strategy.templates.front().stages.front();
}

}  // namespace

std::optional<Job> with_more_recomputed(const Job& job, const std::vector<Recompute>& recomputes) {
  constexpr int kRounds = 4;
  Job now = job;
  try {
    for (int round = 0; round < kRounds; ++round) {
      bool fits = true;
      for (const StageMemory& stage : memory_by_stage(compile(now), now.cluster, now.train.fragmentation)) {
        if (stage.peak <= stage.capacity) continue;
        fits = false;
        const auto lacks = static_cast<double>(stage.peak - stage.capacity);
        if (lacks > kLittle * static_cast<double>(stage.capacity)) return std::nullopt;
        if (!recompute_one_more(stage_of(now.strategy, stage.stage), now.strategy.recompute, recomputes))
          return std::nullopt;
      }
      if (!fits) continue;
      if (round == 0) return std::nullopt;
      return now;
    }
  } catch (const Refusal&) {
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace motley
