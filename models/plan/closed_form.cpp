#include "models/plan/closed_form.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "models/base/index.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

// Whether the schedule allows so many stages with these layers.
bool allows_stages(const PlannedPipeline& pipeline) {
  const std::int64_t stages = std::ssize(pipeline.stages);
  if (stages == 0 || (pipeline.schedule != Schedule::one_f_one_b && stages < 2)) return false;
  if (pipeline.chunks == 1) return true;
  return pipeline.micro_batches % stages == 0 &&
         std::all_of(pipeline.stages.begin(), pipeline.stages.end(),
                     [&](const PlannedStage& stage) { return stage.layers >= pipeline.chunks; });
}

// Seconds of all computes by the closed form of the schedule. `longest_s`: of the longest chunks of each round;
// `all_s`: of a micro-batch in all stages.
double computes_s(const PlannedPipeline& shape, const std::vector<PassSeconds>& passes, double longest_s,
                  double all_s) {
  const auto m = static_cast<double>(shape.micro_batches);
  if (shape.schedule == Schedule::zb_h1) return split_backward_s(passes, m);
  return m * longest_s + (all_s - longest_s) / shape.chunks;
}

// Seconds of the longest chunks of each round, together.
double longest_rounds_s(const PlannedPipeline& pipeline, const std::vector<PassSeconds>& passes) {
  std::vector<double> rounds(at(pipeline.chunks), 0.0);
  for (std::size_t stage = 0; stage < passes.size(); ++stage) {
    const std::int64_t layers = pipeline.stages[stage].layers;
    const std::vector<std::int64_t> chunks = even_layers(layers, pipeline.chunks);
    for (std::size_t i = 0; i < chunks.size(); ++i)
      rounds[i] = std::max(
          rounds[i], passes[stage].seconds() * static_cast<double>(chunks[i]) / static_cast<double>(layers));
  }
  return std::accumulate(rounds.begin(), rounds.end(), 0.0);
}

// Seconds in which a pipeline takes in one more micro-batch, with its transfers. Where backward is split, only what
// other stages wait for counts. Assumes: what goes back from the last stage to the first, for its next chunk, holds
// nothing up.
double with_transfers_s(const PipelineEstimator& estimator, const PlannedPipeline& pipeline,
                        const std::vector<PassSeconds>& passes) {
  std::vector<double> transfer_s = estimator.transfer_seconds(pipeline), stage_s, in_flight;
  for (double& each : transfer_s) each *= pipeline.chunks;
  const std::int64_t stages = std::ssize(passes);
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const PassSeconds& pass = passes[at(stage)];
    stage_s.push_back(pipeline.schedule == Schedule::zb_h1 ? pass.passed_on_s() : pass.seconds());
    in_flight.push_back(in_flight_before(pipeline, stages, stages - stage - 1));
  }
  return cycle_s(stage_s, transfer_s, in_flight);
}

}  // namespace

LayerParameters parameters_of_layer(const Transformer& transformer) {
  LayerParameters counts;
  for (const Parameter& each : parameters(transformer))
    if (each.layer == transformer.layers - 1)
      (each.experts > 0 ? counts.in_experts : counts.rest) += static_cast<double>(each.count());
  return counts;
}

double in_flight_before(const PlannedPipeline& shape, std::int64_t stages, std::int64_t behind) {
  if (shape.chunks == 1) return static_cast<double>(std::min(shape.micro_batches, behind + 1));
  const std::int64_t passes =
      std::min(shape.micro_batches * shape.chunks, 2 * behind + (shape.chunks - 1) * stages + 1);
  return static_cast<double>(passes) / shape.chunks;
}

// Micro-batches that the first chunk of such a stage has in flight: as many as there are stages, then each other chunk
// has as many.
double in_flight_of_first_chunk(const PlannedPipeline& shape, std::int64_t stages, double in_flight) {
  if (shape.chunks == 1) return in_flight;
  const double round = static_cast<double>(stages) * shape.chunks, passes = in_flight * shape.chunks;
  const double rounds = std::floor(passes / round);
  return (rounds * round / shape.chunks) + std::min(passes - rounds * round, static_cast<double>(stages));
}

StagePosition position_of(const PlannedPipeline& shape, std::int64_t stages, std::int64_t behind) {
  StagePosition position;
  position.in_flight = in_flight_before(shape, stages, behind);
  position.first_in_flight = in_flight_of_first_chunk(shape, stages, position.in_flight);
  position.chunks = shape.chunks;
  position.frees_layers = shape.schedule != Schedule::zb_h1;
  return position;
}

ClosedForm::ClosedForm(const Job& job, StagePricer& pricer)
    : job_(job),
      pricer_(pricer),
      estimator_(job, pricer),
      parameters_(parameters_of_layer(job.transformer)) {}

std::optional<double> ClosedForm::step_s(const PlannedPipeline& pipeline) const {
  if (!allows_stages(pipeline)) return std::nullopt;
  const std::int64_t stages = std::ssize(pipeline.stages);
  std::vector<PassSeconds> passes;
  double all_s = 0, reduced_s = 0;
  std::int64_t first = 0;
  for (const PlannedStage& stage : pipeline.stages) {
    const std::int64_t behind = stages - std::ssize(passes) - 1, last = first + stage.layers;
    const std::optional<PartialStage> partial = stage_at(pipeline, stage, stages, behind);
    if (!partial) return std::nullopt;
    StagePosition position = position_of(pipeline, stages, behind);
    position.is_first = first == 0;
    position.is_last = behind == 0;
    const std::int64_t recomputed = recomputed_layers(pipeline, stage);
    if (!partial->bytes.fits(stage.layers, recomputed, position)) return std::nullopt;
    passes.push_back(partial->of_layers(first, last, recomputed));
    all_s += passes.back().seconds();
    reduced_s = std::max(reduced_s, gradients_s(pipeline, stage.way, stage.layers));
    first = last;
  }
  const double computed_s = computes_s(pipeline, passes, longest_rounds_s(pipeline, passes), all_s);
  const auto m = static_cast<double>(pipeline.micro_batches);
  return reduced_s + std::max(computed_s, m * with_transfers_s(estimator_, pipeline, passes));
}

std::optional<PartialStage> ClosedForm::stage_at(const PlannedPipeline& shape, const PlannedStage& stage,
                                                 std::int64_t stages, std::int64_t behind) const {
  std::optional<PartialStage> partial = partial_stage(shape, stage, pricer_);
  if (!partial) return std::nullopt;
  StageWay kept = stage.way;
  if (stage.recompute_layers) kept.recompute = Recompute::none;
  partial->bytes.kept = bytes(shape, kept, partial->bytes.kept, stages, behind);
  partial->bytes.again = bytes(shape, stage.way, partial->bytes.again, stages, behind);
  return partial;
}

double ClosedForm::gradients_s(const PlannedPipeline& shape, const StageWay& way, std::int64_t layers) const {
  const auto copies = static_cast<double>(shape.replicas * shape.context_parallel);
  if (copies == 1) return 0;
  const NodeGroup& group = job_.cluster.groups[at(way.group)];
  const auto cut = static_cast<double>(way.tensor_parallel);
  const double rate =
      rate_to_replicas(job_.cluster, group, shape.replicas * shape.context_parallel, way.tensor_parallel);
  const auto bytes = static_cast<double>(bytes_of(job_.train.gradients) + bytes_of(job_.train.precision));
  const auto of_parts = [&](double count, double parts, double held_by) {
    return count / parts * (1 - 1 / std::max(held_by, 1.0));
  };
  const double parts = shape.expert_parallel > 1 ? static_cast<double>(shape.expert_parallel) : cut;
  const double counts =
      of_parts(parameters_.rest, cut, copies) + of_parts(parameters_.in_experts, parts, copies * cut / parts);
  return counts * static_cast<double>(layers) * bytes / rate;
}

StageBytes ClosedForm::bytes(const PlannedPipeline& shape, const StageWay& way, const StageBytes& priced,
                             std::int64_t stages, std::int64_t behind) const {
  StageBytes bytes = priced;
  if (shape.schedule != Schedule::zb_h1) return bytes;
  const PutOffShares& put_off = pricer_.put_off(way);
  const auto most = static_cast<double>(std::min(shape.micro_batches, stages));
  bytes.layer += bytes.layer_in_flight *
                 (put_off.once + put_off.each * (most - in_flight_before(shape, stages, behind)));
  return bytes;
}

}  // namespace motley
