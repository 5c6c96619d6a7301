#include "models/plan/pipeline_estimate.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "models/base/index.hpp"
#include "models/cluster/message_cost.hpp"
#include "models/plan/partial_recompute.hpp"

namespace motley {
namespace {

// Bytes/s that messages reach over a NIC of the cluster.
double message_rate(const Cluster& cluster, const Nic& nic) {
  if (cluster.transport == TransportPolicy::sockets || nic.kind == NicKind::ethernet) return socket_rate(nic);
  return nic.bandwidth * efficiency_of(nic);
}

// Looks a price up only where the way differs from the last one that was asked for.
class PricesInRow {
 public:
  PricesInRow(StagePricer& pricer, const PlannedPipeline& pipeline) : pricer_(pricer), pipeline_(pipeline) {}
  const StagePrice* operator()(const StageWay& way) {
    if (last_ == nullptr || !(*last_ == way))
      price_ = pricer_.price(way, pipeline_.micro_batch, pipeline_.replicas);
    last_ = &way;
    return price_;
  }

 private:
  StagePricer& pricer_;
  const PlannedPipeline& pipeline_;
  const StageWay* last_ = nullptr;
  const StagePrice* price_ = nullptr;
};

}  // namespace

PipelineEstimator::PipelineEstimator(const Job& job, StagePricer& pricer) : job_(job), pricer_(pricer) {
  for (const Parameter& each : parameters(job.transformer))
    if (each.layer == 0) layer_parameters_ += static_cast<double>(each.count());
}

double PipelineEstimator::boundary_s(const PlannedPipeline& pipeline, const StageWay& from,
                                     const StageWay& to) const {
  const std::int64_t copies = pipeline.replicas * pipeline.context_parallel;
  const double bytes = static_cast<double>(pipeline.micro_batch * job_.train.sequence *
                                           job_.transformer.hidden * bytes_of(job_.train.precision)) /
                       static_cast<double>(pipeline.context_parallel);
  const Cluster& cluster = job_.cluster;
  const auto seconds_at = [&](const NodeGroup& group, const StageWay& way, NicKind kind) {
    const auto nic = std::find_if(group.nics.begin(), group.nics.end(),
                                  [&](const Nic& each) { return each.kind == kind; });
    if (nic == group.nics.end()) return 0.0;
    const double in_a_node =
        std::min(static_cast<double>(copies),
                 static_cast<double>(group.chips_per_node) / static_cast<double>(way.tensor_parallel));
    return bytes * in_a_node / (message_rate(cluster, *nic) * nic->count);
  };
  const NodeGroup &source = cluster.groups[at(from.group)], &target = cluster.groups[at(to.group)];
  const std::optional<NicKind> kind = joining_kind(cluster, from.group, to.group);
  if (!kind) return 0;  // unreachable: a simulation refuses it
  double seconds = std::max(seconds_at(source, from, *kind), seconds_at(target, to, *kind));
  for (const GroupLink& link : cluster.links)
    if (link.is_site_link() && ((link.from == source.name && link.to == target.name) ||
                                (link.from == target.name && link.to == source.name)))
      seconds = std::max(seconds, bytes * static_cast<double>(copies) / link.bandwidth);
  return seconds;
}

std::vector<double> PipelineEstimator::transfer_seconds(const PlannedPipeline& pipeline) const {
  const std::int64_t copies = pipeline.replicas * pipeline.context_parallel;
  std::vector<double> seconds;
  // Chips of each group that the stages before have taken.
  std::vector<std::int64_t> taken(job_.cluster.groups.size(), 0);
  std::map<std::array<std::int64_t, 4>, double> known;
  const auto& stages = pipeline.stages;
  for (std::size_t i = 0; i + 1 < stages.size(); ++i) {
    const StageWay &from = stages[i].way, &to = stages[i + 1].way;
    const std::int64_t chips_per_node = job_.cluster.groups[at(from.group)].chips_per_node;
    const std::int64_t first = taken[at(from.group)];
    taken[at(from.group)] += copies * from.tensor_parallel;
    const std::int64_t last = taken[at(from.group)] + copies * to.tensor_parallel - 1;
    if (from.group == to.group && first / chips_per_node == last / chips_per_node) {
      seconds.push_back(0);
      continue;
    }
    const auto [entry, is_new] =
        known.try_emplace({from.group, from.tensor_parallel, to.group, to.tensor_parallel});
    if (is_new) entry->second = boundary_s(pipeline, from, to);
    seconds.push_back(entry->second);
  }
  return seconds;
}

double PipelineEstimator::step_s(const PlannedPipeline& pipeline) const {
  std::vector<double> seconds = stage_seconds(pipeline);
  const std::vector<double> transfers = transfer_seconds(pipeline);
  double way_s = 0, update = 0;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    seconds[i] = std::max(seconds[i], transfers[i]);
    way_s += 2 * transfers[i];
  }
  for (const PlannedStage& stage : pipeline.stages)
    update = std::max(update, update_s(stage.way, stage.layers, pipeline.replicas));
  return least_step_s(seconds, pipeline.micro_batches) + way_s + update;
}

std::vector<double> PipelineEstimator::stage_seconds(const PlannedPipeline& pipeline) const {
  std::vector<double> seconds;
  std::int64_t first = 0;
  for (const PlannedStage& stage : pipeline.stages) {
    const std::optional<PartialStage> priced = partial_stage(pipeline, stage, pricer_);
    if (!priced) return {};
    const std::int64_t recomputed = recomputed_layers(pipeline, stage);
    seconds.push_back(priced->of_layers(first, first + stage.layers, recomputed).seconds());
    first += stage.layers;
  }
  return seconds;
}

std::vector<std::int64_t> PipelineEstimator::most_layers(const PlannedPipeline& pipeline) const {
  std::vector<std::int64_t> most;
  PricesInRow prices(pricer_, pipeline);
  const auto stages = static_cast<std::int64_t>(pipeline.stages.size());
  for (std::int64_t s = 0; s < stages; ++s) {
    const StagePrice* price = prices(pipeline.stages[at(s)].way);
    const auto flying = static_cast<double>(std::min(stages - s, pipeline.micro_batches));
    most.push_back(price == nullptr ? 0 : price->bytes.most_layers(flying, s == 0, s + 1 == stages));
  }
  return most;
}

bool PipelineEstimator::fits(const PlannedPipeline& pipeline) const {
  const std::vector<std::int64_t> most = most_layers(pipeline);
  for (std::size_t s = 0; s < most.size(); ++s)
    if (most[s] < pipeline.stages[s].layers) return false;
  return true;
}

bool PipelineEstimator::use_lightest_recompute(PlannedPipeline& pipeline) const {
  for (const Recompute& recompute : kPlannedRecomputes) {
    for (PlannedStage& stage : pipeline.stages) stage.way.recompute = recompute;
    if (fits(pipeline)) return true;
  }
  return false;
}

bool PipelineEstimator::recompute_least(PlannedPipeline& pipeline) const {
  const auto stages = static_cast<std::int64_t>(pipeline.stages.size());
  std::int64_t first = 0;
  for (std::int64_t s = 0; s < stages; ++s) {
    PlannedStage& stage = pipeline.stages[at(s)];
    StagePosition position;
    position.in_flight = position.first_in_flight =
        static_cast<double>(std::min(stages - s, pipeline.micro_batches));
    std::optional<double> least_s;
    PlannedStage best = stage;
    for (const Recompute& recompute : pricer_.recomputes()) {
      PlannedStage each = stage;
      each.way.recompute = recompute;
      each.recompute_layers = 0;
      const std::optional<PartialStage> priced = partial_stage(pipeline, each, pricer_);
      if (!priced) continue;
      const auto part = priced->with_least_recompute(first, first + stage.layers, position);
      if (!part || (least_s && part->passes.seconds() >= *least_s)) continue;
      least_s = part->passes.seconds();
      best = planned_stage(each.way, *part, 1);
      if (part->recomputed == 0) break;
    }
    if (!least_s) return false;
    stage = best;
    first += stage.layers;
  }
  return true;
}

double PipelineEstimator::update_s(const StageWay& way, std::int64_t layers, std::int64_t replicas) const {
  const NodeGroup& group = job_.cluster.groups[at(way.group)];
  const auto copies = static_cast<double>(replicas);
  const double count =
      layer_parameters_ * static_cast<double>(layers) / static_cast<double>(way.tensor_parallel);
  const auto sent = static_cast<double>(bytes_of(job_.train.gradients) + bytes_of(job_.train.precision));
  const double moved_s =
      count * sent * (1 - 1 / copies) / rate_to_replicas(job_.cluster, group, replicas, way.tensor_parallel);
  // AdamW reads a gradient and reads and writes the parameter and its two moments, in fp32.
  const double touched = count / copies * 7 * static_cast<double>(bytes_of(Format::fp32));
  return moved_s + touched / group.chip.memory_bandwidth.value;
}

double cycle_s(std::span<const double> stage_s, std::span<const double> transfer_s,
               std::span<const double> in_flight) {
  double behind_s = 0, longest_s = 0;
  for (std::size_t stage = stage_s.size(); stage-- > 0;) {
    behind_s += stage_s[stage] + (stage < transfer_s.size() ? 2 * transfer_s[stage] : 0);
    longest_s = std::max(longest_s, behind_s / in_flight[stage]);
  }
  return longest_s;
}

double split_backward_s(std::span<const PassSeconds> stages, double micro_batches) {
  double passed_s = 0, longest_weights_s = 0, step_s = 0;
  for (const PassSeconds& stage : stages) {
    passed_s += stage.passed_on_s();
    longest_weights_s = std::max(longest_weights_s, stage.weights_s);
  }
  const double put_off = std::min(micro_batches, static_cast<double>(stages.size()) - 1);
  for (const PassSeconds& stage : stages)
    step_s = std::max(step_s, micro_batches * stage.seconds() +
                                  std::max(0.0, passed_s - stage.passed_on_s() - put_off * stage.weights_s));
  return std::max(step_s, passed_s + longest_weights_s);
}

double least_step_s(std::span<const double> stage_s, std::int64_t micro_batches) {
  double least_s = 0, before_s = 0;
  for (const double each : stage_s) {
    least_s = std::max(least_s, static_cast<double>(micro_batches) * each + before_s);
    before_s += each;
  }
  return least_s;
}

std::vector<std::int64_t> tensor_degrees(const NodeGroup& group) {
  std::vector<std::int64_t> degrees;
  for (std::int64_t degree = 1; degree <= group.chips_per_node; degree *= 2)
    if (group.chips_per_node % degree == 0) degrees.push_back(degree);
  return degrees;
}

std::int64_t chips_of(const NodeGroup& group) { return std::int64_t{group.nodes} * group.chips_per_node; }

double rate_to_replicas(const Cluster& cluster, const NodeGroup& group, std::int64_t copies,
                        std::int64_t tensor_parallel) {
  const double inside = group.inside.bandwidth * efficiency_of(group.inside);
  if (copies * tensor_parallel <= group.chips_per_node || group.nics.empty()) return inside;
  const Nic& nic = group.nics[0];
  return std::min(inside, message_rate(cluster, nic) * nic.count / static_cast<double>(tensor_parallel));
}

double most_to_replicas(const NodeGroup& group, std::int64_t copies, std::int64_t tensor_parallel,
                        CollectiveAlgorithm algorithm) {
  const double inside = group.inside.bandwidth * efficiency_of(group.inside);
  const bool passes_inside = copies >= 3 && group.chips_per_node >= 2 * tensor_parallel;
  if (group.nics.empty() || (passes_inside && algorithm == CollectiveAlgorithm::ring)) return inside;
  double outside = 0;
  for (const Nic& nic : group.nics) outside += nic.bandwidth * efficiency_of(nic) * nic.count;
  return std::max(inside, outside);
}

}  // namespace motley
