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
// shorter is hidden.
std::optional<double> estimate_s(const Job& job, StagePricer& pricer, const UniformDegrees& degrees) {
  double computes_s = 0, transfers_s = 0;
  for (std::size_t index = 0; index < job.cluster.groups.size(); ++index) {
    const auto group = static_cast<int>(index);
    const StageSeconds* const seconds =
        pricer.seconds({group, degrees.tensor, degrees.recompute}, degrees.micro_batch);
    if (seconds == nullptr) return std::nullopt;
    computes_s = std::max(computes_s, seconds->of_layers(0, job.transformer.layers).seconds());
    transfers_s = std::max(transfers_s, sharded_transfers_s(job, group, degrees.tensor));
  }
  return static_cast<double>(degrees.micro_batches) * std::max(computes_s, transfers_s);
}

bool holds_micro_batch(const Job& job, StagePricer& pricer, const UniformDegrees& degrees) {
  for (std::size_t index = 0; index < job.cluster.groups.size(); ++index)
    if (!holds_micro_batch(job, pricer, {static_cast<int>(index), degrees.tensor, degrees.recompute},
                           degrees.micro_batch, degrees.data))
      return false;
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

double sharded_transfers_s(const Job& job, int group, std::int64_t tensor_parallel) {
  // Gathers before forward and backward, and a reduction of gradients.
  constexpr double kGathersAndReduction = 3;
  const std::int64_t replicas = job.cluster.chip_count() / tensor_parallel;
  const double rate = rate_to_replicas(job.cluster, job.cluster.groups[at(group)], replicas, tensor_parallel);
  const double bytes =
      static_cast<double>(parameter_count(job.transformer)) / static_cast<double>(tensor_parallel) *
      static_cast<double>(bytes_of(job.train.precision)) * (1 - 1 / static_cast<double>(replicas));
  return kGathersAndReduction * bytes / rate;
}

bool holds_micro_batch(const Job& job, StagePricer& pricer, const StageWay& way, std::int64_t micro_batch,
                       std::int64_t replicas) {
  const StagePrice* const price = pricer.price(way, micro_batch, replicas);
  if (price == nullptr) return false;
  const StageBytes& bytes = price->bytes;
  return bytes.in_flight + bytes.layer_in_flight * static_cast<double>(job.transformer.layers) <=
         bytes.capacity;
}

std::vector<Job> sharded_proposals(const Job& job, StagePricer& pricer, std::size_t most, double most_s) {
  std::vector<std::pair<double, UniformDegrees>> estimates;
  for (const std::int64_t tensor : common_degrees(job.cluster)) {
    const std::int64_t replicas = job.cluster.chip_count() / tensor;
    if (job.train.global_batch % replicas != 0) continue;
    for (const std::int64_t micro_batch : sorted_divisors(job.train.global_batch / replicas))
      for (const Recompute& recompute : pricer.recomputes()) {
        const std::int64_t micro_batches = job.train.global_batch / replicas / micro_batch;
        const UniformDegrees degrees{tensor, 1, replicas, micro_batch, micro_batches, recompute};
        if (const std::optional<double> seconds = estimate_s(job, pricer, degrees))
          estimates.emplace_back(*seconds, degrees);
      }
  }
  std::stable_sort(estimates.begin(), estimates.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Job> jobs;
  for (const auto& [seconds, degrees] : estimates) {
    if (jobs.size() == most || seconds > most_s) break;
    if (!holds_micro_batch(job, pricer, degrees)) continue;
    std::optional<Job> planned = with_degrees(job, degrees, 3);
    if (!planned) continue;
    planned->strategy.overlap_gradients = degrees.data > 1;
    jobs.push_back(std::move(*planned));
  }
  return jobs;
}

}  // namespace motley
