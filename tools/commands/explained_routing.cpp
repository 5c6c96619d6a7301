#include "tools/commands/explained_routing.hpp"

#include <cmath>

#include "models/base/refusal.hpp"
#include "tools/commands/routing_text.hpp"

namespace motley {

std::optional<ExplainedRouting> explain_routing(const MeasuredRouting& routing, std::size_t skipped,
                                                const Prepared& prepared, double predicted_s,
                                                const std::function<double(const Prepared&)>& predict) {
  constexpr double kDigits = 1000, kSame = 1e-9, kLeastGain = 0.01;
  const Train& train = prepared.scenario.job.train;
  const Experts& experts = prepared.scenario.job.transformer.experts;
  ExplainedRouting explained;
  explained.by_rank = divides_experts(routing);
  explained.busiest_rank = mean_of_steps(routing.busiest_rank, skipped);
  explained.busiest_expert = mean_of_steps(routing.busiest_expert, skipped);
  std::vector<DividedLayer> layers(routing.layers.begin(), routing.layers.end());
  if (!explained.by_rank)
    for (DividedLayer& layer : layers) layer.parts = experts.count;
  explained.expected = expected_load(experts, layers, train.expert_skew, train.seed);
  explained.fitted = skew_of_load(experts, layers, train.seed, explained.load());
  explained.fitted.skew = std::round(kDigits * explained.fitted.skew) / kDigits;
  Prepared skewed = prepared;
  skewed.scenario.job.train.expert_skew = explained.fitted.skew;
  try {
    skewed.program = compile(skewed.scenario);
    explained.predicted_s = predict(skewed);
  } catch (const Refusal& refusal) {
    explained.refused = refusal.what();
  }
  if (!explained.by_rank && explained.predicted_s &&
      std::abs(*explained.predicted_s / predicted_s - 1) < kSame)
    return std::nullopt;
  const double gained = explained.fitted.load - explained.expected;
  if (explained.by_rank && !explained.fitted.reached && explained.predicted_s && gained > kLeastGain)
    explained.at_load_s = predicted_s + (*explained.predicted_s - predicted_s) *
                                            (explained.load() - explained.expected) / gained;
  return explained;
}

}  // namespace motley
