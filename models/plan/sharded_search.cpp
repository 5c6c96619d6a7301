#include "models/plan/sharded_search.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/pipeline_rows.hpp"
#include "models/plan/uniform_search.hpp"

namespace motley {
namespace {

// Nothing: a type of chip cannot run it so. The longest computation and the longest transfers of a step, of which the
// shorter is hidden. Assumes: NICs are shared evenly and reach their line.
std::optional<double> estimate_s(const Job& job, StagePricer& pricer, const UniformDegrees& degrees,
                                 double parameters) {
  // Of a micro-batch: gathers before forward and backward, and the reduction of gradients.
  constexpr double kGathersAndReduction = 3;
  const auto replicas = static_cast<double>(degrees.data);
  double computes_s = 0, transfers_s = 0;
  for (std::size_t index = 0; index < job.cluster.groups.size(); ++index) {
    const StageWay way{static_cast<int>(index), degrees.tensor, degrees.recompute};
    const StageSeconds* const seconds = pricer.seconds(way, degrees.micro_batch);
    if (seconds == nullptr) return std::nullopt;
    computes_s = std::max(computes_s, seconds->of_layers(0, job.transformer.layers).seconds());
    const NodeGroup& group = job.cluster.groups[index];
    const bool is_inside = job.cluster.chip_count() <= group.chips_per_node;
    const double rate = is_inside ? group.inside.bandwidth : rate_between_nodes(group);
    const double bytes = parameters / static_cast<double>(degrees.tensor) *
                         static_cast<double>(bytes_of(job.train.precision)) * (1 - 1 / replicas);
    transfers_s = std::max(transfers_s, kGathersAndReduction * bytes / rate);
  }
  return static_cast<double>(degrees.micro_batches) * std::max(computes_s, transfers_s);
}

// Whether a chip of every group has memory for what a micro-batch in flight keeps.
bool holds_activations(const Job& job, StagePricer& pricer, const UniformDegrees& degrees) {
  for (std::size_t index = 0; index < job.cluster.groups.size(); ++index) {
    const StagePrice* const price = pricer.price({static_cast<int>(index), degrees.tensor, degrees.recompute},
                                                 degrees.micro_batch, degrees.data);
    if (price == nullptr) return false;
    const StageBytes& bytes = price->bytes;
    const double kept = bytes.in_flight + bytes.layer_in_flight * static_cast<double>(job.transformer.layers);
    if (kept > bytes.capacity) return false;
  }
  return true;
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
  std::vector<std::pair<double, UniformDegrees>> estimates;
  for (const std::int64_t tensor : common_degrees(job.cluster)) {
    const std::int64_t replicas = job.cluster.chip_count() / tensor;
    if (job.train.global_batch % replicas != 0) continue;
    for (const std::int64_t micro_batch : sorted_divisors(job.train.global_batch / replicas))
      for (const Recompute& recompute : kPlannedRecomputes) {
        const std::int64_t micro_batches = job.train.global_batch / replicas / micro_batch;
        const UniformDegrees degrees{tensor, 1, replicas, micro_batch, micro_batches, recompute};
        if (const std::optional<double> seconds = estimate_s(job, pricer, degrees, parameters_of_model))
          estimates.emplace_back(*seconds, degrees);
      }
  }
  std::stable_sort(estimates.begin(), estimates.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Job> jobs;
  for (const auto& [seconds, degrees] : estimates) {
    if (jobs.size() == most) break;
    if (!holds_activations(job, pricer, degrees)) continue;
    std::optional<Job> planned = with_degrees(job, degrees, 3);
    if (!planned) continue;
    planned->strategy.overlap_gradients = degrees.data > 1;
    jobs.push_back(std::move(*planned));
  }
  return jobs;
}

}  // namespace motley
