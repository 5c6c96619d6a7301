#include "models/plan/sharded_search.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/pipeline_rows.hpp"
#include "models/strategy/strategy.hpp"

namespace motley {
namespace {

struct Sharding {
  std::int64_t tensor_parallel = 1, replicas = 1, micro_batch = 1;
  Recompute recompute;
};

// Nothing: a type of chip cannot run it so. The longest computation and the longest transfers of a step, of which the
// shorter is hidden. Assumes: NICs are shared evenly and reach their line.
std::optional<double> estimate_s(const Job& job, StagePricer& pricer, const Sharding& sharding,
                                 double parameters) {
  // Of a micro-batch: gathers before forward and backward, and the reduction of gradients.
  constexpr double kGathersAndReduction = 3;
  const std::int64_t micro_batches = job.train.global_batch / sharding.micro_batch / sharding.replicas;
  const auto replicas = static_cast<double>(sharding.replicas);
  double computes_s = 0, transfers_s = 0;
  for (std::size_t index = 0; index < job.cluster.groups.size(); ++index) {
    const StageWay way{static_cast<int>(index), sharding.tensor_parallel, sharding.recompute};
    const StageSeconds* const seconds = pricer.seconds(way, sharding.micro_batch);
    if (seconds == nullptr) return std::nullopt;
    computes_s = std::max(computes_s, seconds->of_layers(0, job.transformer.layers).seconds());
    const NodeGroup& group = job.cluster.groups[index];
    const bool is_inside = job.cluster.chip_count() <= group.chips_per_node;
    const double rate = is_inside ? group.inside.bandwidth : rate_between_nodes(group);
    const double bytes = parameters / static_cast<double>(sharding.tensor_parallel) *
                         static_cast<double>(bytes_of(job.train.precision)) * (1 - 1 / replicas);
    transfers_s = std::max(transfers_s, kGathersAndReduction * bytes / rate);
  }
  return static_cast<double>(micro_batches) * std::max(computes_s, transfers_s);
}

// Whether a chip of every group has memory for what a micro-batch in flight keeps.
bool holds_activations(const Job& job, StagePricer& pricer, const Sharding& sharding) {
  for (std::size_t index = 0; index < job.cluster.groups.size(); ++index) {
    const StagePrice* const price =
        pricer.price({static_cast<int>(index), sharding.tensor_parallel, sharding.recompute},
                     sharding.micro_batch, sharding.replicas);
    if (price == nullptr) return false;
    const StageBytes& bytes = price->bytes;
    const double kept = bytes.in_flight + bytes.layer_in_flight * static_cast<double>(job.transformer.layers);
    if (kept > bytes.capacity) return false;
  }
  return true;
}

std::optional<Job> laid_out(Job job, const Sharding& sharding) {
  Train train = job.train;
  train.micro_batch = sharding.micro_batch;
  try {
    Strategy& strategy = job.strategy =
        expand(job.transformer, train, sharding.tensor_parallel, 1, sharding.replicas);
    if (sharding.micro_batch != job.train.micro_batch)
      strategy.templates[0].micro_batch = sharding.micro_batch;
    strategy.recompute = sharding.recompute;
    strategy.sequence_parallel = sharding.tensor_parallel > 1;
    strategy.zero = sharding.replicas > 1 ? 3 : 0;
    strategy.overlap_gradients = sharding.replicas > 1;
    validate(job.transformer, job.train, strategy);
  } catch (const Refusal&) {
    return std::nullopt;
  }
  return job;
}

// The tensor parallelism that every group's nodes allow.
std::vector<std::int64_t> common_degrees(const Cluster& cluster) {
  std::vector<std::int64_t> common = tensor_degrees(cluster.groups.front());
  for (const NodeGroup& group : cluster.groups) {
    const std::vector<std::int64_t> degrees = tensor_degrees(group);
    std::erase_if(common, [&](std::int64_t each) {
      return std::find(degrees.begin(), degrees.end(), each) == degrees.end();
    });
  }
  return common;
}

}  // namespace

std::vector<Job> sharded_proposals(const Job& job, StagePricer& pricer, std::size_t most) {
  double parameters_of_model = 0;
  for (const Parameter& each : parameters(job.transformer))
    parameters_of_model += static_cast<double>(each.count());
  std::vector<std::pair<double, Sharding>> shardings;
  for (const std::int64_t tensor : common_degrees(job.cluster)) {
    const std::int64_t replicas = job.cluster.chip_count() / tensor;
    if (job.train.global_batch % replicas != 0) continue;
    for (const std::int64_t micro_batch : sorted_divisors(job.train.global_batch / replicas))
      for (const Recompute& recompute : kPlannedRecomputes) {
        const Sharding sharding{tensor, replicas, micro_batch, recompute};
        if (const std::optional<double> seconds = estimate_s(job, pricer, sharding, parameters_of_model))
          shardings.emplace_back(*seconds, sharding);
      }
  }
  std::stable_sort(shardings.begin(), shardings.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Job> jobs;
  for (const auto& [seconds, sharding] : shardings) {
    if (jobs.size() == most) break;
    if (!holds_activations(job, pricer, sharding)) continue;
    if (std::optional<Job> planned = laid_out(job, sharding)) jobs.push_back(std::move(*planned));
  }
  return jobs;
}

}  // namespace motley
