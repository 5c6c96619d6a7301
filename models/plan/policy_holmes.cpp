// From the code: an island's family of NICs, tensor parallelism in a node, stages of an island side by side, the
// partition, buckets, one transport a communicator. Assumes: an island is a group of the cluster; its speed is that of
// the whole model on it alone, as the published 197 and 160 TFLOP/s were measured; tensor parallelism, replicas,
// micro-batch and recompute, which its scripts set by hand, are those that simulate fastest; gradients are reduced once
// a step (the code shows it for pipelines of one stage only, in each micro-batch).
#include "models/plan/policy_holmes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/cost/carrier.hpp"
#include "models/plan/baselines.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

constexpr std::size_t kHolmesProposed = 12;
constexpr std::int64_t kHolmesSequences = 8;  // in a micro-batch at most

bool has_kind(const NodeGroup& group, NicKind kind) {
  return std::any_of(group.nics.begin(), group.nics.end(), [&](const Nic& nic) { return nic.kind == kind; });
}

// A pipeline by its degrees. Each island has as many stages as its chips fill.
struct Shape {
  std::int64_t tensor = 1, replicas = 1, micro_batch = 1;
  std::vector<std::int64_t> stages;  // of each island, in order
  std::int64_t all_stages() const { return std::accumulate(stages.begin(), stages.end(), std::int64_t{0}); }
};

class Holmes {
 public:
  explicit Holmes(const PolicyInput& input)
      : input_(input), estimator_(input.job, input.pricer), islands_(islands_in_order(input.job.cluster)) {}

  Proposals run() {
    std::vector<PlannedPipeline> ranked = rank(shapes());
    if (ranked.size() > kHolmesProposed) ranked.resize(kHolmesProposed);
    if (ranked.empty()) return std::move(proposals_);
    measure_speeds(ranked.front());
    for (PlannedPipeline& pipeline : ranked) propose_with(pipeline);
    describe_nics();
    return std::move(proposals_);
  }

 private:
  const NodeGroup& island(std::size_t i) const { return input_.job.cluster.groups[at(islands_[i])]; }

  std::vector<Shape> shapes() const {
    std::vector<Shape> list;
    const std::int64_t batch = input_.job.train.global_batch;
    for (const std::int64_t tensor : tensor_degrees(island(0)))
      for (std::int64_t micro_batch = 1; micro_batch <= std::min(kHolmesSequences, batch); ++micro_batch)
        for (std::int64_t replicas = 1; replicas <= chips_of(island(0)) / tensor; ++replicas) {
          if (batch % (micro_batch * replicas) != 0) continue;
          Shape shape{tensor, replicas, micro_batch, {}};
          for (std::size_t i = 0; i < islands_.size(); ++i)
            if (island(i).chips_per_node % tensor == 0 && chips_of(island(i)) % (tensor * replicas) == 0)
              shape.stages.push_back(chips_of(island(i)) / tensor / replicas);
          if (shape.stages.size() == islands_.size() && shape.all_stages() <= input_.job.transformer.layers)
            list.push_back(std::move(shape));
        }
    return list;
  }

  PlannedPipeline pipeline_of(const Shape& shape, const std::vector<double>& speeds) const {
    PlannedPipeline pipeline;
    pipeline.micro_batch = shape.micro_batch;
    pipeline.replicas = shape.replicas;
    pipeline.micro_batches = input_.job.train.global_batch / shape.micro_batch / shape.replicas;
    std::vector<double> of_stages;
    for (std::size_t i = 0; i < islands_.size(); ++i)
      for (std::int64_t stage = 0; stage < shape.stages[i]; ++stage) {
        pipeline.stages.push_back({{islands_[i], shape.tensor, Recompute::none}, 0});
        of_stages.push_back(speeds[i]);
      }
    use_speeds(pipeline, of_stages);
    return pipeline;
  }

  void use_speeds(PlannedPipeline& pipeline, const std::vector<double>& of_stages) const {
    const auto layers = layers_by_speed(input_.job.transformer.layers, of_stages);
    for (std::size_t i = 0; i < layers.size(); ++i) pipeline.stages[i].layers = layers[i];
  }

  // Pipelines that fit, the lowest estimates first, with layers by the speed of the chips alone.
  std::vector<PlannedPipeline> rank(const std::vector<Shape>& shapes) {
    std::vector<PlannedPipeline> list;
    for (const Shape& shape : shapes) {
      std::vector<double> speeds;
      for (const int group : islands_) {
        const StagePrice* price =
            input_.pricer.price({group, shape.tensor, Recompute::none}, shape.micro_batch, shape.replicas);
        if (price != nullptr) speeds.push_back(1 / price->least_layer_s);
      }
      if (speeds.size() < islands_.size()) continue;
      PlannedPipeline pipeline = pipeline_of(shape, speeds);
      if (!estimator_.use_lightest_recompute(pipeline)) continue;
      ++proposals_.explored;
      pipeline.estimate_s = estimator_.step_s(pipeline);
      list.push_back(std::move(pipeline));
    }
    std::stable_sort(list.begin(), list.end(), [](const PlannedPipeline& a, const PlannedPipeline& b) {
      return a.estimate_s < b.estimate_s;
    });
    return list;
  }

  // The whole model on one island, in as many stages as the pipeline has if its chips allow it.
  std::optional<Job> alone(int group, const PlannedPipeline& like, const Recompute& recompute) const {
    Job job = alone_on(input_.job, group);
    const StageWay& way = like.stages.front().way;
    const std::int64_t chips = job.cluster.chip_count() / way.tensor_parallel;
    job.train.micro_batch = like.micro_batch;
    for (auto stages = static_cast<std::int64_t>(like.stages.size()); stages >= 1; --stages) {
      if (chips % stages != 0) continue;
      try {
        job.strategy = expand(job.transformer, job.train, way.tensor_parallel, stages, chips / stages);
        job.strategy.recompute = recompute;
        job.strategy.expert_weights = planned_expert_weights(job.transformer);
        job.strategy.sequence_parallel = way.tensor_parallel > 1;
        overlap_optimizer(job);
        validate(job.transformer, job.train, job.strategy);
        return job;
      } catch (const Refusal&) {
        continue;
      }
    }
    return std::nullopt;
  }

  // Speeds of a chip in each island, in any unit. An island that cannot hold the model alone has the speed of its
  // chips by closed forms, in the unit of the others.
  void measure_speeds(const PlannedPipeline& like) {
    std::vector<std::optional<double>> steps(islands_.size());
    for (const Recompute& recompute : kPlannedRecomputes) {
      std::vector<Job> jobs;
      std::vector<std::size_t> places;
      for (std::size_t i = 0; i < islands_.size(); ++i)
        if (std::optional<Job> job = steps[i] ? std::nullopt : alone(islands_[i], like, recompute)) {
          jobs.push_back(std::move(*job));
          places.push_back(i);
        }
      if (jobs.empty()) break;
      const auto measured = input_.measure(jobs);
      for (std::size_t i = 0; i < measured.size(); ++i) steps[places[i]] = measured[i];
    }
    double scale = 0;  // measured speed over that of closed forms, where both are known
    std::vector<double> formed;
    for (std::size_t i = 0; i < islands_.size(); ++i) {
      const StageWay way{islands_[i], like.stages.front().way.tensor_parallel, Recompute::none};
      formed.push_back(1 / input_.pricer.price(way, like.micro_batch, like.replicas)->least_layer_s);
      if (steps[i] && scale == 0) scale = speed_of(i, *steps[i]) / formed[i];
    }
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < islands_.size(); ++i) {
      speeds_.push_back(steps[i] ? speed_of(i, *steps[i]) : formed[i] * (scale > 0 ? scale : 1));
      parts.push_back(
          steps[i] ? fmt::format("`{}` alone takes {} a step", island(i).name, format_seconds(*steps[i]))
                   : fmt::format("`{}` cannot hold the model alone: its speed is that of its chips",
                                 island(i).name));
    }
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i] +=
          fmt::format(", speed {:.3f}", speeds_[i] / *std::max_element(speeds_.begin(), speeds_.end()));
    proposals_.notes.push_back(fmt::format("measured: {}", fmt::join(parts, "; ")));
  }

  double speed_of(std::size_t i, double step_s) const {
    return 1 / (step_s * static_cast<double>(chips_of(island(i))));
  }

  void propose_with(PlannedPipeline& pipeline) {
    std::vector<double> of_stages;
    for (const PlannedStage& stage : pipeline.stages) {
      const auto place = std::find(islands_.begin(), islands_.end(), stage.way.group) - islands_.begin();
      of_stages.push_back(speeds_[at(place)]);
    }
    use_speeds(pipeline, of_stages);
    if (!estimator_.use_lightest_recompute(pipeline)) return;
    Proposal& proposal = proposals_.list.emplace_back();
    proposal.job = with_pipeline(input_.job, pipeline);
    overlap_optimizer(proposal.job);
    use_transport(PlanPolicy::holmes, proposal.job.cluster);
    proposal.least_s = least_step_s(estimator_.stage_seconds(pipeline), pipeline.micro_batches);
  }

  static std::string word_of(const CarrierChoice& choice, const NodeGroup& group) {
    if (choice.reason == CarrierReason::one_node) return "inside a node";
    if (choice.carrier.sockets) return "TCP";
    if (!choice.carrier.over && group.nics.empty()) return "no NICs";
    return std::string(name_of(choice.carrier.over ? *choice.carrier.over : group.nics[0].kind));
  }

  void describe_nics() {
    Cluster cluster = input_.job.cluster;
    use_transport(PlanPolicy::holmes, cluster);
    std::vector<std::string> parts;
    std::vector<int> one_of_each;
    for (std::size_t i = 0; i < islands_.size(); ++i) {
      std::vector<int> chips(at(chips_of(island(i))));
      std::iota(chips.begin(), chips.end(), cluster.layout[at(islands_[i])].first_chip);
      one_of_each.push_back(chips.front());
      parts.push_back(fmt::format("groups inside `{}`: {}", island(i).name,
                                  word_of(choose_carrier(cluster, chips), island(i))));
    }
    if (islands_.size() > 1)
      parts.push_back(fmt::format("pipelines: {}", word_of(choose_carrier(cluster, one_of_each), island(0))));
    proposals_.notes.push_back(fmt::format("NICs: {}", fmt::join(parts, "; ")));
  }

  const PolicyInput& input_;
  PipelineEstimator estimator_;
  std::vector<int> islands_;
  std::vector<double> speeds_;  // of a chip in each island, in any unit
  Proposals proposals_;
};

}  // namespace

void overlap_optimizer(Job& job) {
  job.strategy.zero = job.strategy.dp() > 1 ? 1 : 0;
  job.strategy.overlap_gradients = true;
  job.strategy.bucket_bytes = kHolmesBucket * bytes_of(job.train.gradients);
}

std::vector<int> islands_in_order(const Cluster& cluster) {
  std::vector<int> order(cluster.groups.size());
  std::iota(order.begin(), order.end(), 0);
  const auto family = [&](int group) {
    const NodeGroup& nodes = cluster.groups[at(group)];
    return has_kind(nodes, NicKind::infiniband) ? 0 : has_kind(nodes, NicKind::roce) ? 1 : 2;
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return family(a) < family(b); });
  return order;
}

Proposals propose_holmes(const PolicyInput& input) { return Holmes(input).run(); }

}  // namespace motley
