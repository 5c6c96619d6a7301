#include "models/plan/replica_search.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/closed_form.hpp"
#include "models/plan/moves.hpp"
#include "models/plan/partial_recompute.hpp"

namespace motley {
namespace {

// What is estimated to take so much longer is not judged. Assumes: of two pipelines that differ in the replicas of some
// stages, estimates tell which is faster within so much.
constexpr double kNear = 1.05;
constexpr double kImpossible = std::numeric_limits<double>::infinity();
constexpr int kPipelines = 12;  // from which moves are listed

std::optional<int> group_of(const Stage& stage, const Cluster& cluster) {
  if (stage.on.empty() && cluster.groups.size() == 1) return 0;
  for (std::size_t group = 0; group < cluster.groups.size(); ++group)
    if (stage.on.size() == 1 && stage.on[0] == cluster.groups[group].name) return static_cast<int>(group);
  return std::nullopt;
}

// Nothing: stages are not priced so.
std::optional<StageWay> way_of(const Job& job, const PipelineTemplate& pipeline, const Stage& stage) {
  const std::optional<int> group = group_of(stage, job.cluster);
  const Recompute& recompute = stage.recompute.value_or(job.strategy.recompute);
  const bool is_planned =
      std::find(kPlannedRecomputes.begin(), kPlannedRecomputes.end(), recompute) != kPlannedRecomputes.end();
  const bool cuts_experts = stage.expert_parallel > 1 && stage.expert_cut() > 1;
  if (!group || !is_planned || cuts_experts || !stage.more.empty()) return std::nullopt;
  return StageWay{*group, stage.tensor_parallel, recompute, pipeline.context_parallel, stage.expert_parallel};
}

double passes_s(const StageWay& way, const Stage& stage, std::int64_t micro_batch, StagePricer& pricer) {
  StageWay keeping = way;
  keeping.recompute = Recompute::none;
  const StageSeconds *const kept = pricer.seconds(keeping, micro_batch), *const again =
                                                                             pricer.seconds(way, micro_batch);
  if (kept == nullptr || again == nullptr) return kImpossible;
  const std::int64_t layers = stage.last_layer - stage.first_layer;
  const std::int64_t recomputed =
      way.recompute == Recompute::none ? 0 : std::min(layers, stage.recompute_layers.value_or(layers));
  return PartialStage{*kept, *again, {}}.of_layers(stage.first_layer, stage.last_layer, recomputed).seconds();
}

}  // namespace

std::optional<double> replicated_step_s(const Job& job, StagePricer& pricer) {
  if (job.strategy.templates.size() != 1) return std::nullopt;
  const PipelineTemplate& pipeline = job.strategy.templates[0];
  const ClosedForm closed_form(job, pricer);
  const std::int64_t sequences =
      pipeline.replicas * (pipeline.micro_batch > 0 ? pipeline.micro_batch : job.train.micro_batch);
  double longest_s = 0, all_s = 0, reduced_s = 0;
  for (const Stage& stage : pipeline.stages) {
    const std::optional<StageWay> way = way_of(job, pipeline, stage);
    if (!way) return std::nullopt;
    PlannedPipeline shape;
    shape.replicas = pipeline.replicas_of(stage);
    shape.context_parallel = pipeline.context_parallel;
    shape.expert_parallel = stage.expert_parallel;
    const double seconds = passes_s(*way, stage, sequences / shape.replicas, pricer);
    longest_s = std::max(longest_s, seconds);
    all_s += seconds;
    reduced_s =
        std::max(reduced_s, closed_form.gradients_s(shape, *way, stage.last_layer - stage.first_layer));
  }
  const bool fills_bubble =
      job.strategy.schedule != Schedule::one_f_one_b && job.strategy.schedule != Schedule::gpipe;
  return reduced_s + static_cast<double>(pipeline.micro_batches) * longest_s +
         (fills_bubble ? 0 : all_s - longest_s);
}

std::vector<Job> replica_proposals(const Job& job, StagePricer& pricer,
                                   const std::vector<PlannedPipeline>& pipelines, std::size_t most,
                                   const std::function<bool()>& has_time) {
  struct Estimated {
    double step_s = 0;
    Job job;
  };
  double least_s = kImpossible;
  for (const PlannedPipeline& pipeline : pipelines) least_s = std::min(least_s, pipeline.estimate_s);
  std::vector<Estimated> list;
  int looked_at = 0;
  for (const PlannedPipeline& pipeline : pipelines) {
    if (looked_at == kPipelines || !has_time()) break;
    if (pipeline.chunks > 1 || pipeline.stages.size() < 2) continue;
    ++looked_at;
    const Job from = with_pipeline(job, pipeline);
    for (const Move& move : moves(from, MoveKind::replicas)) {
      std::optional<Job> next = apply(move, from);
      const std::optional<double> step_s = next ? replicated_step_s(*next, pricer) : std::nullopt;
      const bool is_new = next && std::none_of(list.begin(), list.end(), [&](const Estimated& other) {
                            return other.job.strategy == next->strategy;
                          });
      if (is_new && step_s && *step_s < kNear * least_s) list.push_back({*step_s, std::move(*next)});
    }
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Estimated& a, const Estimated& b) { return a.step_s < b.step_s; });
  std::vector<Job> jobs;
  for (Estimated& each : list)
    if (jobs.size() < most) jobs.push_back(std::move(each.job));
  return jobs;
}

void keep_near(std::vector<Job>& moved, const Job& from, StagePricer& pricer) {
  const std::optional<double> now_s = replicated_step_s(from, pricer);
  if (!now_s) return;
  std::erase_if(moved, [&](const Job& job) {
    const std::optional<double> step_s = replicated_step_s(job, pricer);
    return step_s && *step_s > kNear * *now_s;
  });
}

}  // namespace motley
