#include "models/plan/v_search.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/pipeline_rows.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

constexpr std::array kVSchedules = {Schedule::zb_v, Schedule::dualpipe_v};
constexpr int kChunks = 2;

// Layers of each stage as even as possible; those in the middle get one more, because the first one has embedding and
// head.
std::vector<std::int64_t> layers_of_v(std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> counts = even_layers(layers, stages);
  std::reverse(counts.begin(), counts.end());
  return counts;
}

class VSearch {
 public:
  VSearch(const Job& job, StagePricer& pricer) : pricer_(pricer), estimator_(job, pricer) {}

  // Nothing: there is no such pipeline, its memory does not suffice, or it takes `most_s` or more.
  std::optional<PlannedPipeline> estimated(PlannedPipeline pipeline, double most_s) const {
    const StagePrice* const price =
        pricer_.price(pipeline.stages.front().way, pipeline.micro_batch, pipeline.replicas);
    if (price == nullptr || !fits(pipeline, *price)) return std::nullopt;
    const std::optional<double> step_s = step_of(pipeline, *price, most_s);
    if (!step_s || *step_s >= most_s) return std::nullopt;
    pipeline.estimate_s = *step_s;
    return pipeline;
  }

 private:
  static bool fits(const PlannedPipeline& pipeline, const StagePrice& price) {
    const auto in_flight =
        static_cast<double>(std::min<std::int64_t>(pipeline.micro_batches, std::ssize(pipeline.stages)));
    StageBytes bytes = price.bytes;
    bytes.first += bytes.last;  // both ends of the model are on the first stage
    for (std::size_t i = 0; i < pipeline.stages.size(); ++i)
      if (bytes.most_layers(in_flight, i == 0, false) < pipeline.stages[i].layers) return false;
    return true;
  }

  std::optional<double> step_of(const PlannedPipeline& pipeline, const StagePrice& price,
                                double most_s) const {
    const auto stages = static_cast<int>(pipeline.stages.size());
    const PipelineShape shape{stages, kChunks, static_cast<int>(pipeline.micro_batches), 0,
                              overlaps_steps(pipeline.schedule)};
    if (find_complaint(pipeline.schedule, shape)) return std::nullopt;
    ScheduleTimes times;
    std::vector<std::size_t> next(at(stages), 0);
    std::vector<double> work_s(at(stages), 0);
    std::int64_t first = 0;
    for (const int stage : placement(pipeline.schedule, shape)) {
      const std::vector<std::int64_t> chunks = even_layers(pipeline.stages[at(stage)].layers, kChunks);
      const std::int64_t last = first + chunks[next[at(stage)]++];
      const PassSeconds pass = price.of_layers(first, last);
      times.stages.push_back({pass.forward_s, pass.backward_s - pass.weights_s, pass.weights_s});
      work_s[at(stage)] += pass.seconds();
      first = last;
    }
    const double longest_s = *std::max_element(work_s.begin(), work_s.end());
    if (static_cast<double>(pipeline.micro_batches) * longest_s >= most_s) return std::nullopt;
    const std::vector<double> transfers = estimator_.transfer_seconds(pipeline);
    if (!transfers.empty()) times.transfer_s = *std::max_element(transfers.begin(), transfers.end());
    const std::optional<ScheduleResult> result =
        evaluate(make_timetable(pipeline.schedule, shape, times), times);
    if (!result) return std::nullopt;
    double period_s = 0;
    for (const RankTimes& rank : result->ranks) period_s = std::max(period_s, rank.last_s - rank.first_s);
    const PlannedStage& longest = pipeline.stages.back();
    return period_s +
           estimator_.update_s(longest.way, longest.layers, pipeline.replicas * pipeline.context_parallel);
  }

  StagePricer& pricer_;
  PipelineEstimator estimator_;
};

}  // namespace

std::vector<PlannedPipeline> search_v_pipelines(const Job& job, StagePricer& pricer, const PipelineForm& form,
                                                std::size_t most, double most_s,
                                                const std::function<bool()>& has_time) {
  std::vector<PlannedPipeline> best;
  if (form.most_chunks < kChunks || !form.splits_backward) return best;
  const VSearch search(job, pricer);
  const auto is_better = [](const PlannedPipeline& a, const PlannedPipeline& b) {
    return a.estimate_s < b.estimate_s;
  };
  const auto try_stages = [&](const ReplicaShape& shape, const RowSegment& segment, std::int64_t stages) {
    PlannedPipeline pipeline;
    pipeline.micro_batch = shape.micro_batch;
    pipeline.replicas = shape.replicas;
    pipeline.micro_batches = job.train.global_batch / shape.micro_batch / shape.replicas;
    pipeline.context_parallel = shape.context_parallel;
    pipeline.expert_parallel = shape.expert_parallel;
    pipeline.chunks = kChunks;
    const StageWay way{segment.group, segment.tensor_parallel, Recompute::none, shape.context_parallel,
                       shape.expert_parallel};
    for (const std::int64_t layers : layers_of_v(job.transformer.layers, stages))
      pipeline.stages.push_back({way, layers});
    for (const Schedule schedule : kVSchedules) {
      pipeline.schedule = schedule;
      const double enough_s = best.size() < most ? most_s : best.back().estimate_s;
      if (std::optional<PlannedPipeline> estimated = search.estimated(pipeline, enough_s)) {
        best.insert(std::upper_bound(best.begin(), best.end(), *estimated, is_better), *estimated);
        if (best.size() > most) best.pop_back();
      }
    }
  };
  for (const ReplicaShape& shape : shapes_of(job, form))
    for (int group = 0; group < static_cast<int>(job.cluster.groups.size()); ++group)
      for (const std::int64_t cut : tensor_degrees(job.cluster.groups[at(group)])) {
        if (!has_time()) return best;
        const std::int64_t stage_chips = shape.replicas * shape.context_parallel * cut;
        const std::int64_t stages =
            std::min(chips_of(job.cluster.groups[at(group)]) / stage_chips, job.transformer.layers / kChunks);
        const RowSegment segment{group, cut};
        if (stages < 2 || stage_chips % shape.expert_parallel != 0 ||
            (form.allows_row && !form.allows_row({segment})) || (form.stages > 0 && stages != form.stages) ||
            (form.most_stages > 0 && stages > form.most_stages))
          continue;
        try_stages(shape, segment, stages);
      }
  return best;
}

}  // namespace motley
