#include "models/plan/uniform_search.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

struct UniformEstimate {
  double step_s = 0, least_s = 0;  // without transfers and gradients; no simulation takes less
};

// Nothing: a stage does not fit, or cannot be cut so.
std::optional<UniformEstimate> estimate(const Job& job, const UniformDegrees& degrees, StagePricer& pricer,
                                        const UniformForm& form) {
  const std::vector<std::int64_t> layers = even_layers(job.transformer.layers, degrees.pipeline);
  const std::int64_t chips = degrees.tensor * degrees.data;
  const auto count = static_cast<double>(degrees.micro_batches);
  double longest_s = 0, all_s = 0, fastest_before_s = 0, least_s = 0;
  std::int64_t first = 0;
  for (std::int64_t stage = 0; stage < degrees.pipeline; ++stage) {
    const std::int64_t last = first + layers[at(stage)];
    const auto flying = static_cast<double>(std::min(degrees.pipeline - stage, degrees.micro_batches));
    double slowest_s = 0, fastest_s = std::numeric_limits<double>::infinity();
    const int first_group = job.cluster.chip_group[at(stage * chips)];
    const int last_group = job.cluster.chip_group[at((stage + 1) * chips - 1)];
    for (int group = first_group; group <= last_group; ++group) {
      const StagePrice* price =
          pricer.price({group, degrees.tensor, degrees.recompute}, degrees.micro_batch, degrees.data);
      if (price == nullptr) return std::nullopt;
      if (form.zero < 2 &&
          price->bytes.most_layers(flying, stage == 0, last == job.transformer.layers) < last - first)
        return std::nullopt;
      const double seconds = price->of_layers(first, last).seconds();
      slowest_s = std::max(slowest_s, seconds);
      fastest_s = std::min(fastest_s, seconds);
    }
    least_s = std::max(least_s, count * slowest_s + fastest_before_s);
    fastest_before_s += fastest_s;
    longest_s = std::max(longest_s, slowest_s);
    all_s += slowest_s;
    first = last;
  }
  return UniformEstimate{(count - 1) * longest_s + all_s, least_s};
}

}  // namespace

std::optional<Job> with_degrees(const Job& job, const UniformDegrees& degrees, int zero) {
  Job planned = job;
  try {
    Train train = job.train;
    train.micro_batch = degrees.micro_batch;
    planned.strategy = expand(job.transformer, train, degrees.tensor, degrees.pipeline, degrees.data);
    if (degrees.micro_batch != job.train.micro_batch)
      planned.strategy.templates[0].micro_batch = degrees.micro_batch;
    planned.strategy.recompute = degrees.recompute;
    planned.strategy.expert_weights = planned_expert_weights(job.transformer);
    planned.strategy.zero = degrees.data > 1 ? zero : 0;
    planned.strategy.sequence_parallel = degrees.tensor > 1;
    validate(planned.transformer, planned.train, planned.strategy);
  } catch (const Refusal&) {
    return std::nullopt;
  }
  return planned;
}

UniformSearch search_uniform(const Job& job, StagePricer& pricer, std::size_t most, const UniformForm& form) {
  constexpr std::int64_t kMostSequences = 8;
  UniformSearch search;
  std::vector<std::pair<UniformEstimate, UniformDegrees>> estimates;
  const std::int64_t chips = job.cluster.chip_count(), batch = job.train.global_batch;
  for (std::int64_t tensor = 1; tensor <= chips; tensor *= 2)
    for (std::int64_t pipeline = 1;
         pipeline <= std::min({job.transformer.layers, chips / tensor, form.most_stages}); ++pipeline)
      for (std::int64_t micro_batch = 1; micro_batch <= std::min(kMostSequences, batch); ++micro_batch) {
        const std::int64_t data = chips / tensor / pipeline;
        if (data * tensor * pipeline != chips || batch % (micro_batch * data) != 0) continue;
        for (const Recompute& recompute : kPlannedRecomputes) {
          const UniformDegrees degrees{tensor,   pipeline, data, micro_batch, batch / micro_batch / data,
                                       recompute};
          const std::optional<UniformEstimate> seconds = estimate(job, degrees, pricer, form);
          if (!seconds) continue;
          ++search.explored;
          estimates.emplace_back(*seconds, degrees);
        }
      }
  std::stable_sort(estimates.begin(), estimates.end(),
                   [](const auto& a, const auto& b) { return a.first.step_s < b.first.step_s; });
  for (const auto& [seconds, degrees] : estimates) {
    if (search.best.size() == most) break;
    std::optional<Job> planned = with_degrees(job, degrees, form.zero);
    if (!planned) continue;
    search.best.push_back(std::move(*planned));
    search.least_s.push_back(seconds.least_s);
  }
  return search;
}

}  // namespace motley
