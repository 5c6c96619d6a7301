#include "models/plan/type_degrees.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/pipeline_estimate.hpp"

namespace motley {
namespace {

constexpr std::int64_t kTypeSequences = 8;  // in a micro-batch at most

// All choices of tensor parallelism for one micro-batch and number of replicas.
class DegreesOfGroups {
 public:
  DegreesOfGroups(const Job& job, StagePricer& pricer, std::vector<TypeDegrees>& list)
      : job_(job), pricer_(pricer), list_(list) {}

  void extend(TypeDegrees& degrees) {
    const std::size_t group = degrees.tensor.size();
    if (group == job_.cluster.groups.size()) return add(degrees);
    const NodeGroup& nodes = job_.cluster.groups[group];
    for (const std::int64_t tensor : tensor_degrees(nodes)) {
      const std::int64_t stages = chips_of(nodes) / (tensor * degrees.replicas);
      if (stages == 0) break;
      const StagePrice* price = pricer_.price({static_cast<int>(group), tensor, Recompute::none},
                                              degrees.micro_batch, degrees.replicas);
      if (price == nullptr) continue;
      degrees.tensor.push_back(tensor);
      degrees.stages.push_back(stages);
      degrees.layer_s.push_back(price->least_layer_s);
      extend(degrees);
      degrees.tensor.pop_back();
      degrees.stages.pop_back();
      degrees.layer_s.pop_back();
    }
  }

 private:
  void add(TypeDegrees degrees) {
    while (degrees.all_stages() > job_.transformer.layers) {
      std::int64_t& most = *std::max_element(degrees.stages.begin(), degrees.stages.end());
      if (most == 1) return;
      --most;
    }
    double layers_per_s = 0;
    for (std::size_t group = 0; group < degrees.stages.size(); ++group)
      layers_per_s += static_cast<double>(degrees.stages[group]) / degrees.layer_s[group];
    const auto layers = static_cast<double>(job_.transformer.layers);
    const auto count = static_cast<double>(degrees.micro_batches + degrees.all_stages() - 1);
    const std::int64_t even = job_.transformer.layers / degrees.all_stages();
    degrees.balanced_s = count * layers / layers_per_s;
    degrees.even_s =
        count * static_cast<double>(even) * *std::max_element(degrees.layer_s.begin(), degrees.layer_s.end());
    list_.push_back(std::move(degrees));
  }

  const Job& job_;
  StagePricer& pricer_;
  std::vector<TypeDegrees>& list_;
};

}  // namespace

std::int64_t TypeDegrees::all_stages() const {
  return std::accumulate(stages.begin(), stages.end(), std::int64_t{0});
}

std::vector<TypeDegrees> type_degrees(const Job& job, StagePricer& pricer) {
  std::vector<TypeDegrees> list;
  const std::int64_t batch = job.train.global_batch;
  std::int64_t most_replicas = batch;
  for (const NodeGroup& group : job.cluster.groups) most_replicas = std::min(most_replicas, chips_of(group));
  for (std::int64_t micro_batch = 1; micro_batch <= std::min(kTypeSequences, batch); ++micro_batch)
    for (std::int64_t replicas = 1; replicas <= most_replicas; ++replicas) {
      if (batch % (micro_batch * replicas) != 0) continue;
      TypeDegrees degrees;
      degrees.micro_batch = micro_batch;
      degrees.replicas = replicas;
      degrees.micro_batches = batch / micro_batch / replicas;
      DegreesOfGroups(job, pricer, list).extend(degrees);
    }
  return list;
}

PlannedPipeline in_order(const TypeDegrees& degrees, std::span<const int> order) {
  PlannedPipeline pipeline;
  pipeline.micro_batch = degrees.micro_batch;
  pipeline.micro_batches = degrees.micro_batches;
  pipeline.replicas = degrees.replicas;
  for (const int group : order)
    for (std::int64_t stage = 0; stage < degrees.stages[at(group)]; ++stage)
      pipeline.stages.push_back({{group, degrees.tensor[at(group)], Recompute::none}, 0});
  return pipeline;
}

}  // namespace motley
