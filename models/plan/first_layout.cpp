#include "models/plan/first_layout.hpp"

#include <algorithm>

#include "models/plan/stage_price.hpp"

namespace motley {
namespace {

FirstLayout layout_of(const Job& job) {
  const Strategy& strategy = job.strategy;
  const PipelineTemplate& pipeline = strategy.templates.at(0);
  FirstLayout layout;
  layout.degrees = {.tensor = strategy.tp(),
                    .pipeline = strategy.pp(),
                    .data = strategy.dp(),
                    .micro_batch = pipeline.micro_batch > 0 ? pipeline.micro_batch : job.train.micro_batch,
                    .micro_batches = pipeline.micro_batches,
                    .recompute = strategy.recompute};
  layout.zero = strategy.zero;
  return layout;
}

// Layouts whose memory the closed forms have not looked at, in the order of their estimates.
std::vector<FirstLayout> unlooked(const Job& job, StagePricer& pricer, int zero) {
  constexpr std::size_t kAll = 4096;
  std::vector<FirstLayout> layouts;
  for (const Job& each : search_uniform(job, pricer, kAll, {.zero = 3}).best) {
    layouts.push_back(layout_of(each));
    if (layouts.back().degrees.data > 1) layouts.back().zero = zero;
  }
  return layouts;
}

// The same, with each layer's experts divided over as many ranks of a stage as there are, and as they can be.
void divide_all_experts(const Job& job, std::vector<FirstLayout>& layouts) {
  for (FirstLayout& layout : layouts) {
    std::int64_t& divided = layout.expert_parallel;
    const std::int64_t ranks = layout.degrees.tensor * layout.degrees.data;
    while (job.transformer.experts.count % (2 * divided) == 0 && ranks % (2 * divided) == 0) divided *= 2;
  }
}

// Keeps the `most` first that save most memory: all recomputed, one sequence at a time.
std::vector<FirstLayout> sparing(std::vector<FirstLayout> layouts, std::size_t most) {
  std::erase_if(layouts, [](const FirstLayout& each) {
    return !(each.degrees.recompute == Recompute::full) || each.degrees.micro_batch > 1;
  });
  layouts.resize(std::min(layouts.size(), most));
  return layouts;
}

}  // namespace

std::optional<FirstLayout> find_first_layout(const Job& job,
                                             const std::function<bool(const FirstLayout&)>& stands) {
  constexpr std::size_t kFast = 12, kSparing = 24;
  StagePricer pricer(job);
  std::vector<FirstLayout> layouts;
  if (job.transformer.experts.count > 1) {
    std::vector<FirstLayout> divided = unlooked(job, pricer, 1);
    divide_all_experts(job, divided);
    const std::vector<FirstLayout> spared = sparing(divided, kSparing);
    divided.resize(std::min(divided.size(), kFast));
    layouts.insert(layouts.end(), divided.begin(), divided.end());
    layouts.insert(layouts.end(), spared.begin(), spared.end());
  }
  for (const Job& each : search_uniform(job, pricer, kFast).best) layouts.push_back(layout_of(each));
  for (const int zero : {1, 3}) {
    std::vector<FirstLayout> spared = sparing(unlooked(job, pricer, zero), kSparing);
    layouts.insert(layouts.end(), spared.begin(), spared.end());
    if (job.transformer.experts.count > 1) {
      divide_all_experts(job, spared);
      layouts.insert(layouts.end(), spared.begin(), spared.end());
    }
  }
  const auto first = std::find_if(layouts.begin(), layouts.end(), stands);
  return first == layouts.end() ? std::nullopt : std::optional(*first);
}

}  // namespace motley
