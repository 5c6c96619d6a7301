#include "models/plan/work_bound.hpp"

#include <algorithm>
#include <limits>

#include "models/base/index.hpp"

namespace motley {

double work_bound_s(const Job& job, StagePricer& pricer) {
  const std::size_t groups = job.cluster.groups.size();
  std::vector<StagePricer::LeastWork> work;
  std::vector<double> prices, chips;
  double all = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    const NodeGroup& nodes = job.cluster.groups[group];
    work.push_back(pricer.least_work(static_cast<int>(group)));
    const double slowness = pricer.slowness(static_cast<int>(group));
    for (double& layer_s : work.back().layers) layer_s *= slowness;
    work.back().ends *= slowness;
    const double whole_s = work.back().seconds();
    chips.push_back(static_cast<double>(nodes.nodes) * nodes.chips_per_node);
    prices.push_back(1 / whole_s);
    all += chips.back() / whole_s;
  }
  const auto least_price = [&](auto&& seconds_of) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t group = 0; group < groups; ++group)
      least = std::min(least, prices[group] / all * seconds_of(work[group]));
    return least;
  };
  double bound_s = least_price([](const StagePricer::LeastWork& each) { return each.ends; });
  for (std::int64_t layer = 0; layer < job.transformer.layers; ++layer)
    bound_s += least_price([&](const StagePricer::LeastWork& each) { return each.layers[at(layer)]; });
  return std::min(bound_s * static_cast<double>(job.train.global_batch), pricer.few_ranks_step_s());
}

}  // namespace motley
