#include "models/plan/template_search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/pipeline_rows.hpp"
#include "models/plan/sharded_search.hpp"
#include "models/plan/template_mix.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

// Numbers of stages that are looked at. Assumes: one between two of them is no better than both by more than they
// differ.
constexpr std::array<std::int64_t, 20> kStageCounts = {1,  2,  3,  4,  5,  6,  7,  8,  10, 12,
                                                       14, 16, 20, 24, 28, 32, 40, 48, 56, 64};

// Pipelines and what they are to a mix, each at the same index.
struct Kinds {
  std::vector<PlannedPipeline> pipelines;
  std::vector<TemplateKind> kinds;
};

std::vector<double> chips_used(const Job& job, const PlannedPipeline& pipeline) {
  std::vector<double> chips(job.cluster.groups.size(), 0);
  for (const PlannedStage& stage : pipeline.stages)
    chips[at(stage.way.group)] += static_cast<double>(stage.way.tensor_parallel * pipeline.context_parallel);
  return chips;
}

// Finds kinds of pipelines, and how long each takes.
class KindFinder {
 public:
  KindFinder(const Job& job, StagePricer& pricer)
      : job_(job),
        pricer_(pricer),
        estimator_(job, pricer),
        bytes_per_parameter_(least_bytes(job)),
        parameters_(static_cast<double>(parameter_count(job.transformer))) {}

  // Pipelines on one group, all stages alike.
  void add_on_group(Kinds& kinds, int group, std::int64_t micro_batch) {
    const NodeGroup& nodes = job_.cluster.groups[at(group)];
    for (const std::int64_t cut : tensor_degrees(nodes))
      for (const std::int64_t count : kStageCounts) {
        const std::int64_t chips = cut * count;
        if (count > job_.transformer.layers || chips > chips_of(nodes)) break;
        if (nodes.chips_per_node % chips != 0 && chips % nodes.chips_per_node != 0) continue;
        if (parameters_ * bytes_per_parameter_ > static_cast<double>(chips) * nodes.chip.memory_bytes.value)
          continue;
        PlannedPipeline pipeline;
        pipeline.micro_batch = micro_batch;
        pipeline.replicas = chips_of(nodes) / chips;
        pipeline.micro_batches =
            std::max<std::int64_t>(1, job_.train.global_batch / micro_batch / pipeline.replicas);
        for (const std::int64_t layers : even_layers(job_.transformer.layers, static_cast<int>(count)))
          pipeline.stages.push_back({{group, cut, Recompute::none}, layers});
        if (estimator_.stage_seconds(pipeline).empty() || !estimator_.recompute_least(pipeline)) continue;
        even_out(pipeline);
        add(kinds, std::move(pipeline));
      }
  }

  // A replica of a pipeline that may stand on several groups.
  void add_replica(Kinds& kinds, const PlannedPipeline& pipeline) {
    if (pipeline.schedule == Schedule::one_f_one_b && pipeline.expert_parallel == 1 && pipeline.chunks == 1)
      add(kinds, pipeline);
  }

  // Single stages, of which all replicas of the mix divide parameters, gradients and optimizer state.
  void add_sharded(Kinds& kinds, int group, std::int64_t cut, std::int64_t micro_batch) {
    for (const Recompute& recompute : pricer_.recomputes()) {
      const StageWay way{group, cut, recompute};
      const std::int64_t replicas = job_.cluster.chip_count() / cut;
      const StageSeconds* const seconds = pricer_.seconds(way, micro_batch);
      if (seconds == nullptr || !holds_micro_batch(job_, pricer_, way, micro_batch, replicas)) continue;
      PlannedPipeline pipeline;
      pipeline.micro_batch = micro_batch;
      pipeline.replicas = replicas;
      pipeline.stages = {{way, job_.transformer.layers}};
      const double each_s = std::max(seconds->of_layers(0, job_.transformer.layers).seconds(),
                                     sharded_transfers_s(job_, group, cut));
      kinds.kinds.push_back({chips_used(job_, pipeline), micro_batch, 0, each_s});
      kinds.pipelines.push_back(std::move(pipeline));
      return;
    }
  }

 private:
  // Of each parameter, whatever is divided among replicas.
  static double least_bytes(const Job& job) {
    return static_cast<double>(bytes_of(job.train.precision) + bytes_of(job.train.gradients));
  }

  // Seconds in which all pipelines of the mix reduce and gather the parameters of a stage: at the rate of the slowest
  // group, because they stand on all of them.
  double reduced_s(const PlannedPipeline& pipeline, const PlannedStage& stage) const {
    const std::vector<double> chips = chips_used(job_, pipeline);
    const auto each = static_cast<std::int64_t>(std::accumulate(chips.begin(), chips.end(), 0.0));
    const std::int64_t copies = job_.cluster.chip_count() / each;
    if (copies < 2) return 0;
    double rate = std::numeric_limits<double>::infinity();
    for (const NodeGroup& group : job_.cluster.groups)
      rate = std::min(rate, rate_to_replicas(job_.cluster, group, copies, stage.way.tensor_parallel));
    return estimator_.layer_parameters() * static_cast<double>(stage.layers) /
           static_cast<double>(stage.way.tensor_parallel) * bytes_per_parameter_ / rate;
  }

  // Moves layers from the longest stage to the shortest one while that makes the longest shorter and all stages fit.
  void even_out(PlannedPipeline& pipeline) const {
    for (std::size_t moved = 0; moved < pipeline.stages.size(); ++moved) {
      const std::vector<double> seconds = estimator_.stage_seconds(pipeline);
      const auto from = std::max_element(seconds.begin(), seconds.end()) - seconds.begin();
      const auto to = std::min_element(seconds.begin(), seconds.end()) - seconds.begin();
      PlannedPipeline other = pipeline;
      if (other.stages[at(from)].layers < 2) return;
      --other.stages[at(from)].layers;
      ++other.stages[at(to)].layers;
      if (!estimator_.recompute_least(other)) return;
      const std::vector<double> after = estimator_.stage_seconds(other);
      if (*std::max_element(after.begin(), after.end()) >= seconds[at(from)]) return;
      pipeline = std::move(other);
    }
  }

  void add(Kinds& kinds, PlannedPipeline pipeline) {
    const std::vector<double> seconds = estimator_.stage_seconds(pipeline);
    const std::vector<double> transfers = estimator_.transfer_seconds(pipeline);
    const double longest_s = *std::max_element(seconds.begin(), seconds.end());
    std::vector<double> in_flight(seconds.size());
    std::iota(in_flight.rbegin(), in_flight.rend(), 1.0);
    const double each_s = std::max(longest_s, cycle_s(seconds, transfers, in_flight));
    double update_s = 0;
    for (const PlannedStage& stage : pipeline.stages) {
      update_s = std::max({update_s, reduced_s(pipeline, stage),
                           estimator_.update_s(stage.way, stage.layers, pipeline.replicas)});
    }
    // Assumes: a single stage reduces and gathers while the last micro-batch and the next first one run.
    if (seconds.size() == 1) update_s = std::max(0.0, update_s - longest_s);
    const double once_s = update_s + std::accumulate(seconds.begin(), seconds.end(), -longest_s) +
                          2 * std::accumulate(transfers.begin(), transfers.end(), 0.0);
    kinds.kinds.push_back({chips_used(job_, pipeline), pipeline.micro_batch, once_s, each_s});
    kinds.pipelines.push_back(std::move(pipeline));
  }

  const Job& job_;
  StagePricer& pricer_;
  PipelineEstimator estimator_;
  double bytes_per_parameter_ = 0, parameters_ = 0;
};

Job with_mix(const Job& job, const Kinds& kinds, const TemplateMix& mix, int zero) {
  Job planned = job;
  Strategy& strategy = planned.strategy = {};
  bool has_stages = false;
  for (const MixPart& part : mix.parts) {
    PlannedPipeline pipeline = kinds.pipelines[part.kind];
    pipeline.replicas = part.replicas;
    pipeline.micro_batches = part.micro_batches;
    const Strategy one = with_pipeline(job, pipeline).strategy;
    strategy.templates.push_back(one.templates.front());
    strategy.sequence_parallel = strategy.sequence_parallel || one.sequence_parallel;
    strategy.expert_weights = one.expert_weights;
    has_stages = has_stages || pipeline.stages.size() > 1;
  }
  strategy.zero = zero;
  strategy.overlap_gradients = !has_stages;
  strategy.overlap_parameters = zero == 1;
  return planned;
}

// Whether replicas of each template can divide parameters among themselves: in as many parts in each of them.
bool can_divide(const TemplateMix& mix) {
  std::int64_t parts = 0;
  for (const MixPart& part : mix.parts) parts = std::gcd(parts, part.replicas);
  return parts > 1;
}

// Seconds more in which ranks reduce gradients whose stages are cut unlike. Then a rank with a larger part of a layer
// reduces it in several groups, one after the other, of which each has one ring, over one chip's share of the NICs.
double unlike_cuts_s(const Job& job, const Kinds& kinds, const TemplateMix& mix, double layer_parameters) {
  std::set<std::int64_t> cuts;
  double most = 0, rate = std::numeric_limits<double>::infinity();  // parameters of a rank; bytes/s
  for (const MixPart& part : mix.parts)
    for (const PlannedStage& stage : kinds.pipelines[part.kind].stages) {
      const std::int64_t cut = stage.way.tensor_parallel;
      const NodeGroup& group = job.cluster.groups[at(stage.way.group)];
      cuts.insert(cut);
      most = std::max(most, layer_parameters * static_cast<double>(stage.layers) / static_cast<double>(cut));
      rate = std::min(rate,
                      rate_to_replicas(job.cluster, group, job.cluster.chip_count(), group.chips_per_node));
    }
  if (cuts.size() == 1) return 0;
  return most * static_cast<double>(bytes_of(job.train.precision) + bytes_of(job.train.gradients)) / rate;
}

void add_mixes(const Job& job, const Kinds& kinds, int zero, std::vector<TemplateProposal>& proposals) {
  std::vector<double> chips;
  for (const NodeGroup& group : job.cluster.groups) chips.push_back(static_cast<double>(chips_of(group)));
  const double layer_parameters =
      static_cast<double>(parameter_count(job.transformer)) / static_cast<double>(job.transformer.layers);
  const TemplateMixer mixer(kinds.kinds, chips, job.train.global_batch);
  for (const TemplateMix& mix : mixer.mixes()) {
    if (mix.parts.size() < 2) continue;  // equal replicas are other searches' work
    if (zero > 1 && !can_divide(mix)) continue;
    TemplateProposal proposal{mix.step_s + unlike_cuts_s(job, kinds, mix, layer_parameters),
                              with_mix(job, kinds, mix, zero)};
    try {
      validate(job.transformer, job.train, proposal.job.strategy);
    } catch (const Refusal&) {
      continue;
    }
    const bool is_known = std::any_of(proposals.begin(), proposals.end(), [&](const TemplateProposal& other) {
      return other.job.strategy == proposal.job.strategy;
    });
    if (!is_known) proposals.push_back(std::move(proposal));
  }
}

std::set<std::int64_t> cuts_of(const Cluster& cluster) {
  std::set<std::int64_t> cuts;
  for (const NodeGroup& group : cluster.groups)
    for (const std::int64_t cut : tensor_degrees(group)) cuts.insert(cut);
  return cuts;
}

// Those whose stages all have that tensor parallelism.
Kinds cut_alike(const Kinds& all, std::int64_t cut) {
  Kinds kinds;
  for (std::size_t kind = 0; kind < all.kinds.size(); ++kind) {
    const std::vector<PlannedStage>& stages = all.pipelines[kind].stages;
    if (std::any_of(stages.begin(), stages.end(),
                    [cut](const PlannedStage& stage) { return stage.way.tensor_parallel != cut; }))
      continue;
    kinds.pipelines.push_back(all.pipelines[kind]);
    kinds.kinds.push_back(all.kinds[kind]);
  }
  return kinds;
}

void append(Kinds& all, const Kinds& more) {
  all.pipelines.insert(all.pipelines.end(), more.pipelines.begin(), more.pipelines.end());
  all.kinds.insert(all.kinds.end(), more.kinds.begin(), more.kinds.end());
}

}  // namespace

std::vector<TemplateProposal> template_proposals(const Job& job, StagePricer& pricer,
                                                 const std::vector<PlannedPipeline>& pipelines,
                                                 std::size_t most, const std::function<bool()>& has_time) {
  std::vector<TemplateProposal> proposals;
  KindFinder finder(job, pricer);
  Kinds all;
  for (const std::int64_t micro_batch : sorted_divisors(job.train.global_batch)) {
    if (micro_batch > most_sequences(job.train)) break;
    Kinds kinds, sharded;
    for (std::size_t group = 0; group < job.cluster.groups.size() && has_time(); ++group) {
      finder.add_on_group(kinds, static_cast<int>(group), micro_batch);
      for (const std::int64_t cut : tensor_degrees(job.cluster.groups[group]))
        finder.add_sharded(sharded, static_cast<int>(group), cut, micro_batch);
    }
    // With micro-batches of one size each batch can be made up, with several sizes only some.
    add_mixes(job, kinds, 1, proposals);
    for (const std::int64_t cut : cuts_of(job.cluster)) {
      add_mixes(job, cut_alike(kinds, cut), 1, proposals);
      add_mixes(job, cut_alike(sharded, cut), 3, proposals);
    }
    append(all, kinds);
  }
  for (const PlannedPipeline& pipeline : pipelines) finder.add_replica(all, pipeline);
  add_mixes(job, all, 1, proposals);
  std::stable_sort(
      proposals.begin(), proposals.end(),
      [](const TemplateProposal& a, const TemplateProposal& b) { return a.estimate_s < b.estimate_s; });
  if (proposals.size() > most) proposals.resize(most);
  return proposals;
}

}  // namespace motley
