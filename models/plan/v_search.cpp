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

class VSearch {
 public:
  VSearch(const Job& job, StagePricer& pricer, const PipelineForm& form)
      : job_(job), pricer_(pricer), form_(form), estimator_(job, pricer) {}

  // The pipeline whose stages stand on that row, of which the longest is as short as can be. Its estimate is what its
  // longest stage takes, which no schedule can shorten. Nothing: the row cannot hold the model in a V.
  std::optional<PlannedPipeline> laid_out(const ReplicaShape& shape, const Row& row) const {
    PlannedPipeline pipeline;
    pipeline.micro_batch = shape.micro_batch;
    pipeline.replicas = shape.replicas;
    pipeline.micro_batches = job_.train.global_batch / shape.micro_batch / shape.replicas;
    pipeline.context_parallel = shape.context_parallel;
    pipeline.expert_parallel = shape.expert_parallel;
    pipeline.chunks = kChunks;
    for (const RowSegment& segment : row) {
      const std::int64_t stage_chips = shape.replicas * shape.context_parallel * segment.tensor_parallel;
      if (stage_chips % shape.expert_parallel != 0) return std::nullopt;
      const std::int64_t most = job_.transformer.layers / kChunks - std::ssize(pipeline.stages);
      const std::int64_t stages =
          std::min(chips_of(job_.cluster.groups[at(segment.group)]) / stage_chips, most);
      if (stages < 1) return std::nullopt;
      const StageWay way{segment.group, segment.tensor_parallel, Recompute::none, shape.context_parallel,
                         shape.expert_parallel};
      pipeline.stages.insert(pipeline.stages.end(), at(stages), {way, 0});
    }
    const std::int64_t stages = std::ssize(pipeline.stages);
    if (stages < 2 || (form_.stages > 0 && stages != form_.stages) ||
        (form_.most_stages > 0 && stages > form_.most_stages) || !share_out_layers(pipeline))
      return std::nullopt;
    return pipeline;
  }

  // Seconds of a step under the pipeline's schedule. Nothing: the schedule cannot be made.
  std::optional<double> step_s(const PlannedPipeline& pipeline) const {
    const auto stages = static_cast<int>(pipeline.stages.size());
    const PipelineShape shape{stages, kChunks, static_cast<int>(pipeline.micro_batches), 0,
                              overlaps_steps(pipeline.schedule)};
    if (find_complaint(pipeline.schedule, shape)) return std::nullopt;
    ScheduleTimes times;
    std::vector<std::size_t> next(at(stages), 0);
    std::int64_t first = 0;
    for (const int stage : placement(pipeline.schedule, shape)) {
      const std::vector<std::int64_t> chunks = even_layers(pipeline.stages[at(stage)].layers, kChunks);
      const std::int64_t last = first + chunks[next[at(stage)]++];
      const PassSeconds pass = price_of(pipeline, pipeline.stages[at(stage)])->of_layers(first, last);
      times.stages.push_back({pass.forward_s, pass.backward_s - pass.weights_s, pass.weights_s});
      first = last;
    }
    const std::vector<double> transfers = estimator_.transfer_seconds(pipeline);
    times.transfer_s = *std::max_element(transfers.begin(), transfers.end());
    const std::optional<ScheduleResult> result =
        evaluate(make_timetable(pipeline.schedule, shape, times), times);
    if (!result) return std::nullopt;
    double period_s = 0, update_s = 0;
    for (const RankTimes& rank : result->ranks) period_s = std::max(period_s, rank.last_s - rank.first_s);
    for (const PlannedStage& stage : pipeline.stages)
      update_s = std::max(update_s, estimator_.update_s(stage.way, stage.layers,
                                                        pipeline.replicas * pipeline.context_parallel));
    return period_s + update_s;
  }

 private:
  const StagePrice* price_of(const PlannedPipeline& pipeline, const PlannedStage& stage) const {
    return pricer_.price(stage.way, pipeline.micro_batch, pipeline.replicas);
  }

  // Gives each layer to the stage that is the shortest with it, of those that have memory for it; two layers a stage
  // at least. False: they do not fit.
  bool share_out_layers(PlannedPipeline& pipeline) const {
    struct Share {
      double seconds = 0, layer_s = 0;
      std::int64_t most = 0;
    };
    // A stage keeps at most 2 p + 1 chunks in flight, under zb-v 2 p.
    const double in_flight = std::min(static_cast<double>(pipeline.micro_batches),
                                      static_cast<double>(pipeline.stages.size()) + 0.5);
    std::vector<Share> shares;
    for (const PlannedStage& stage : pipeline.stages) {
      const StagePrice* const price = price_of(pipeline, stage);
      if (price == nullptr) return false;
      const bool is_first = shares.empty();  // it has both ends of the model
      const double once_s = kChunks * price->pass.seconds() +
                            (is_first ? price->embedding.seconds() + price->head.seconds() : 0);
      StageBytes bytes = price->bytes;
      bytes.layer += bytes.layer_in_flight * pricer_.put_off(stage.way).once;
      bytes.in_flight *= kChunks;  // each chunk has its own input
      shares.push_back({once_s, price->least_layer_s, bytes.most_layers(in_flight, is_first, is_first)});
    }
    std::int64_t left = job_.transformer.layers;
    const auto give = [&](std::size_t stage, std::int64_t layers) {
      pipeline.stages[stage].layers += layers;
      shares[stage].seconds += static_cast<double>(layers) * shares[stage].layer_s;
      left -= layers;
    };
    for (std::size_t stage = 0; stage < shares.size(); ++stage) {
      if (shares[stage].most < kChunks) return false;
      give(stage, kChunks);
    }
    while (left > 0) {
      std::optional<std::size_t> shortest;
      for (std::size_t stage = 0; stage < shares.size(); ++stage) {
        const Share& share = shares[stage];
        if (pipeline.stages[stage].layers < share.most &&
            (!shortest ||
             share.seconds + share.layer_s < shares[*shortest].seconds + shares[*shortest].layer_s))
          shortest = stage;
      }
      if (!shortest) return false;
      give(*shortest, 1);
    }
    for (const Share& share : shares)
      pipeline.estimate_s =
          std::max(pipeline.estimate_s, static_cast<double>(pipeline.micro_batches) * share.seconds);
    return true;
  }

  const Job& job_;
  StagePricer& pricer_;
  const PipelineForm& form_;
  PipelineEstimator estimator_;
};

bool is_shorter(const PlannedPipeline& a, const PlannedPipeline& b) { return a.estimate_s < b.estimate_s; }

}  // namespace

std::vector<PlannedPipeline> search_v_pipelines(const Job& job, StagePricer& pricer, const PipelineForm& form,
                                                std::size_t most, double most_s,
                                                const std::function<bool()>& has_time) {
  std::vector<PlannedPipeline> best, candidates;
  if (form.most_chunks < kChunks || !form.splits_backward) return best;
  const VSearch search(job, pricer, form);
  // Of pipelines that are cut unlike, those whose longest stage is shorter than any that is cut alike are looked at.
  double longest_s = most_s;
  for (const bool is_unlike : {false, true}) {
    if (is_unlike && !form.has_unlike_cuts) break;
    std::vector<Row> rows;
    for (const Row& row : segment_sets(job.cluster))
      if (has_unlike_cuts(row) == is_unlike && (!form.allows_row || form.allows_row(row)))
        rows.push_back(row);
    for (const ReplicaShape& shape : shapes_of(job, form))
      for (const Row& row : rows) {
        if (!has_time()) return best;
        std::optional<PlannedPipeline> pipeline = search.laid_out(shape, row);
        if (pipeline && pipeline->estimate_s < longest_s) candidates.push_back(std::move(*pipeline));
      }
    for (const PlannedPipeline& each : candidates) longest_s = std::min(longest_s, each.estimate_s);
  }
  std::stable_sort(candidates.begin(), candidates.end(), is_shorter);
  for (PlannedPipeline& pipeline : candidates) {
    const double enough_s = best.size() < most ? most_s : best.back().estimate_s;
    if (pipeline.estimate_s >= enough_s || !has_time()) break;
    for (const Schedule schedule : kVSchedules) {
      pipeline.schedule = schedule;
      const std::optional<double> step_s = search.step_s(pipeline);
      if (!step_s || *step_s >= most_s) continue;
      PlannedPipeline estimated = pipeline;
      estimated.estimate_s = *step_s;
      best.insert(std::upper_bound(best.begin(), best.end(), estimated, is_shorter), std::move(estimated));
      if (best.size() > most) best.pop_back();
    }
  }
  return best;
}

}  // namespace motley
