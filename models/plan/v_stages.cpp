#include "models/plan/v_stages.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "models/base/index.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

StagePosition position_of(const InFlight& in_flight, bool is_first) {
  StagePosition position;
  position.in_flight = position.first_in_flight = in_flight.kept;
  position.is_first = position.is_last = is_first;
  position.chunks = kChunksInV;
  position.frees_layers = false;
  return position;
}

StageWay without_recompute(StageWay way) {
  way.recompute = Recompute::none;
  return way;
}

}  // namespace

InFlight peak_in_flight(const std::vector<Action>& actions, int stage,
                        const std::vector<std::int64_t>& layers, const PutOffShares& shares) {
  const auto all = static_cast<double>(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}));
  const auto bytes = [&](const InFlight& each) { return each.kept + each.beyond_kept(shares); };
  InFlight now, peak;
  for (const Action& action : actions) {
    const double part = static_cast<double>(layers[action.virtual_stage == stage ? 0 : 1]) / all;
    InFlight during = now;
    switch (action.pass) {
      case Pass::forward:
        now.kept += part;
        during = now;
        break;
      case Pass::backward:
        now.kept -= part;
        break;
      case Pass::input_gradient:
        during.begun = part;
        now.kept -= part;
        now.put_off += part;
        break;
      case Pass::weight_gradient:
        now.put_off -= part;
    }
    if (bytes(during) > bytes(peak)) peak = during;
  }
  return peak;
}

InFlight VStages::usual_in_flight(std::int64_t micro_batches, std::int64_t stages) {
  return {std::min(static_cast<double>(micro_batches), static_cast<double>(stages) + 0.5), 0, 1};
}

bool VStages::is_more(const InFlight& a, const InFlight& b, const StageWay& way) const {
  const PutOffShares& shares = pricer_.put_off(way);
  return a.kept + a.beyond_kept(shares) > b.kept + b.beyond_kept(shares);
}

// Bytes of a stage of which some layers recompute that way.
PartialBytes VStages::stage_bytes(const StageWay& way, const PlannedPipeline& shape,
                                  const InFlight& in_flight) const {
  const auto bytes = [&](const StageWay& each) {
    StageBytes sum = pricer_.price(each, shape.micro_batch, shape.replicas)->bytes;
    sum.layer += sum.layer_in_flight * in_flight.beyond_kept(pricer_.put_off(each));
    sum.in_flight *= kChunksInV;  // each chunk has its own input
    return sum;
  };
  return {bytes(without_recompute(way)), bytes(way)};
}

bool VStages::fits(const PlannedPipeline& pipeline, const std::vector<InFlight>& in_flight) const {
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    const PlannedStage& stage = pipeline.stages[i];
    const std::int64_t recomputed =
        stage.way.recompute == Recompute::none ? 0 : recomputed_layers(pipeline, stage);
    if (!stage_bytes(stage.way, pipeline, in_flight[i])
             .fits(stage.layers, recomputed, position_of(in_flight[i], i == 0)))
      return false;
  }
  return true;
}

RecomputedParts VStages::limit_by_memory(StageClass& stage, const StageWay& way, const PlannedPipeline& shape,
                                         const InFlight& in_flight, bool is_first, double most_s,
                                         bool may_recompute) const {
  const StagePosition position = position_of(in_flight, is_first);
  struct Way {
    StageWay way;
    const StagePrice* price = nullptr;
    PartialBytes bytes;
  };
  std::vector<Way> ways;
  for (const Recompute& recompute : pricer_.recomputes()) {
    if (recompute != Recompute::none && !may_recompute) break;
    Way& again = ways.emplace_back();
    again.way = way;
    again.way.recompute = recompute;
    again.price = pricer_.price(again.way, shape.micro_batch, shape.replicas);
    if (again.price == nullptr && recompute == Recompute::none) return {};
    if (again.price == nullptr)
      ways.pop_back();
    else
      again.bytes = stage_bytes(again.way, shape, in_flight);
  }
  const StagePrice* const kept = ways.front().price;
  RecomputedParts parts(kChunksInV);
  stage.with_layers.assign(kChunksInV, 0);
  for (std::int64_t layers = kChunksInV; layers <= job_.transformer.layers; ++layers) {
    double least_s = std::numeric_limits<double>::infinity();
    RecomputedPart best;
    for (const Way& again : ways) {
      const std::optional<std::int64_t> recomputed = again.bytes.least_recomputed(layers, position);
      if (!recomputed) continue;
      const double seconds =
          stage.once_s + static_cast<double>(layers) * kept->least_layer_s +
          static_cast<double>(*recomputed) * (again.price->least_layer_s - kept->least_layer_s);
      if (seconds < least_s) best = {again.way.recompute, *recomputed};
      least_s = std::min(least_s, seconds);
      if (*recomputed == 0) break;
    }
    if (!(least_s <= most_s)) break;
    stage.with_layers.push_back(std::max(stage.with_layers.back(), least_s));
    parts.push_back(best);
  }
  stage.most_layers = std::ssize(parts) - 1;
  if (stage.most_layers < kChunksInV) parts.clear();
  return parts;
}

double VStages::held_for_weights(const StageWay& way, const PlannedPipeline& shape, std::int64_t layers,
                                 std::int64_t recomputed) const {
  const auto kept_by_layer = [&](const StageWay& each) {
    return pricer_.price(each, shape.micro_batch, shape.replicas)->bytes.layer_in_flight;
  };
  const StageWay kept = without_recompute(way);
  const double kept_bytes = static_cast<double>(layers - recomputed) * kept_by_layer(kept);
  double bytes = kept_bytes, held_bytes = kept_bytes * pricer_.put_off(kept).each;
  if (recomputed > 0) {
    const double again_bytes = static_cast<double>(recomputed) * kept_by_layer(way);
    bytes += again_bytes;
    held_bytes += again_bytes * pricer_.put_off(way).each;
  }
  return bytes > 0 ? held_bytes / bytes : 1;
}

std::optional<VStages::Timed> VStages::timed_step(const PlannedPipeline& pipeline) const {
  const auto stages = static_cast<int>(pipeline.stages.size());
  const PipelineShape shape{stages, kChunksInV, static_cast<int>(pipeline.micro_batches), 0,
                            overlaps_steps(pipeline.schedule)};
  if (find_complaint(pipeline.schedule, shape)) return std::nullopt;
  ScheduleTimes times;
  std::vector<std::size_t> next(at(stages), 0);
  std::int64_t first = 0;
  for (const int i : placement(pipeline.schedule, shape)) {
    const PlannedStage& stage = pipeline.stages[at(i)];
    const std::int64_t layers = even_layers(stage.layers, kChunksInV)[next[at(i)]++];
    const std::int64_t recomputed = std::min(layers, stage.recompute_layers.value_or(layers));
    const PassSeconds pass =
        partial_stage(pipeline, stage, pricer_)->of_layers(first, first + layers, recomputed);
    times.stages.push_back({pass.forward_s, pass.backward_s - pass.weights_s, pass.weights_s,
                            held_for_weights(stage.way, pipeline, layers, recomputed)});
    first += layers;
  }
  const std::vector<double> transfers = estimator_.transfer_seconds(pipeline);
  times.transfer_s = *std::max_element(transfers.begin(), transfers.end());
  if (pipeline.put_off == PutOff::count) times = put_off_by_count(std::move(times));
  const Timetable timetable = make_timetable(pipeline.schedule, shape, times);
  const std::optional<ScheduleResult> result = evaluate(timetable, times);
  if (!result) return std::nullopt;
  Timed timed;
  for (const RankTimes& rank : result->ranks)
    timed.step_s = std::max(timed.step_s, rank.last_s - rank.first_s);
  timed.step_s += update_s(pipeline);
  for (int i = 0; i < stages; ++i)
    timed.in_flight.push_back(peak_in_flight(timetable.ranks[at(i)], i,
                                             even_layers(pipeline.stages[at(i)].layers, kChunksInV),
                                             pricer_.put_off(pipeline.stages[at(i)].way)));
  return timed;
}

double VStages::update_s(const PlannedPipeline& pipeline) const {
  double longest_s = 0;
  for (const PlannedStage& stage : pipeline.stages)
    longest_s = std::max(longest_s, estimator_.update_s(stage.way, stage.layers,
                                                        pipeline.replicas * pipeline.context_parallel));
  return longest_s;
}

}  // namespace motley
