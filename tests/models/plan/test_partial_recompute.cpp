// Stages that recompute a part of their layers: closed forms against compiled jobs, and against each other.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/compile/predicted_order.hpp"
#include "models/plan/partial_recompute.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// A job on one group, whose chips hold what is asked of them.
Job roomy_job(Dice& dice) {
  Job job = tiny_job({1, 1, 1}, dice.one_of({Family::gpt2, Family::llama}));
  job.transformer.layers = dice.one_of({8, 12, 16});
  job.train.sequence = dice.one_of({16, 32});
  job.transformer.max_positions = std::max(job.transformer.max_positions, job.train.sequence);
  NodeGroup& group = job.cluster.groups[0];
  group.nodes = 8;
  group.chips_per_node = 2;
  group.nics = {{NicKind::ethernet, 1, 1e9, 1e-6}};
  group.inside = {FabricKind::loopback, 1e9, 0};
  group.chip.memory_bytes.value = 4e9;
  build_topology(job.cluster);
  return job;
}

// A pipeline of some stages, each of which recomputes any number of its layers in any way.
PlannedPipeline random_pipeline(Dice& dice, Job& job, int chunks) {
  PlannedPipeline pipeline;
  pipeline.micro_batch = dice.one_of({1, 2});
  pipeline.replicas = dice.one_of({1, 2});
  pipeline.chunks = chunks;
  if (chunks > 1) pipeline.schedule = Schedule::interleaved;
  const std::int64_t stages = dice.one_of({2, 4}), cut = dice.one_of({1, 2});
  pipeline.micro_batches = stages * dice.one_of({1, 2, 4});
  job.train.global_batch = pipeline.micro_batches * pipeline.micro_batch * pipeline.replicas;
  for (std::int64_t left = job.transformer.layers, s = 0; s < stages; ++s) {
    PlannedStage stage;
    stage.way = {0, cut, dice.one_of({Recompute::selective, Recompute::full})};
    stage.layers = chunks > 1 ? job.transformer.layers / stages : left / (stages - s);
    if (chunks == 1 && s + 1 < stages && stage.layers > 1) stage.layers -= dice.one_of({0, 1});
    left -= stage.layers;
    const std::int64_t part = dice.one_of({1, 2, 3});
    if (part * chunks < stage.layers) stage.recompute_layers = part;
    pipeline.stages.push_back(stage);
  }
  return pipeline;
}

StagePosition position_of(const PlannedPipeline& pipeline, std::int64_t stage) {
  const auto stages = static_cast<std::int64_t>(pipeline.stages.size());
  StagePosition position;
  position.chunks = pipeline.chunks;
  position.is_first = stage == 0;
  position.is_last = stage + 1 == stages;
  const std::int64_t behind = stages - stage - 1, chunks = pipeline.chunks;
  const std::int64_t passes =
      std::min(pipeline.micro_batches * chunks, 2 * behind + (chunks - 1) * stages + 1);
  position.in_flight = chunks == 1 ? static_cast<double>(std::min(pipeline.micro_batches, behind + 1))
                                   : static_cast<double>(passes) / static_cast<double>(chunks);
  const std::int64_t round = stages * chunks;
  position.first_in_flight =
      chunks == 1 ? position.in_flight
                  : static_cast<double>(passes / round * stages + std::min(passes % round, stages));
  return position;
}

// Adds what layers keep for gradients of weights that are put off.
void add_put_off(PartialBytes& bytes, const PlannedStage& stage, const PlannedPipeline& pipeline,
                 const StagePosition& position, StagePricer& pricer) {
  StageWay way = stage.way;
  const double most =
      std::min(static_cast<double>(pipeline.micro_batches), static_cast<double>(pipeline.stages.size()));
  const auto add = [&](StageBytes& each) {
    const PutOffShares& put_off = pricer.put_off(way);
    each.layer += each.layer_in_flight * (put_off.once + put_off.each * (most - position.in_flight));
  };
  add(bytes.again);
  way.recompute = stage.recompute_layers ? Recompute::none : way.recompute;
  add(bytes.kept);
}

// Bytes of a way that recomputes nothing, and of one that does: it keeps less, and needs room to compute again.
PartialBytes random_bytes(Dice& dice) {
  PartialBytes bytes;
  StageBytes &kept = bytes.kept, &again = bytes.again;
  kept.fixed = dice.one_of({0.0, 1.0, 3.0});
  kept.in_flight = again.in_flight = dice.one_of({0.0, 0.1});
  kept.layer = again.layer = dice.one_of({0.5, 1.0, 4.0});
  kept.layer_in_flight = dice.one_of({0.5, 1.0, 2.0});
  again.layer_in_flight = kept.layer_in_flight * dice.one_of({0.1, 0.6, 0.9});
  again.fixed = kept.fixed + kept.layer_in_flight * dice.one_of({0.0, 0.5, 1.0, 1.2});
  kept.first = again.first = dice.one_of({0.0, 2.0});
  kept.last = dice.one_of({0.0, 2.0});
  again.last = kept.last * dice.one_of({0.5, 1.0});
  kept.capacity = again.capacity = dice.one_of({10.0, 20.0, 30.0, 45.0});
  return bytes;
}

StagePosition random_position(Dice& dice) {
  StagePosition position;
  position.in_flight = position.first_in_flight = dice.one_of({1.0, 2.0, 3.0, 6.0});
  position.is_first = dice.once_in(3);
  position.is_last = dice.once_in(3);
  position.chunks = dice.one_of({1, 1, 2, 3});
  position.frees_layers = !dice.once_in(3);
  return position;
}

}  // namespace

TEST_CASE("stages that recompute a part of their layers take and need what compiled ones do", "[plan]") {
  int partial = 0;
  double least = 1, most = 1, worst_split = 0;
  for (unsigned seed = 1; seed <= drawn_of(120U); ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Job job = roomy_job(dice);
    const int chunks = dice.one_of({1, 1, 2});
    if (chunks > 1) job.transformer.layers = dice.one_of({12, 16});
    PlannedPipeline pipeline = random_pipeline(dice, job, chunks);
    if (chunks == 1 && dice.once_in(3)) pipeline.schedule = Schedule::zb_h1;
    const bool splits_backward = pipeline.schedule == Schedule::zb_h1;
    StagePricer pricer(job);
    const Job planned = with_pipeline(job, pipeline);
    validate(planned.transformer, planned.train, planned.strategy);
    const Program program = compile(planned);
    const ScheduleTimes times = predicted_times(program, planned.cluster, 0);
    const std::vector<StageMemory> memory =
        memory_by_stage(program, planned.cluster, planned.train.fragmentation);
    std::int64_t first = 0;
    for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
      const PlannedStage& stage = pipeline.stages[i];
      CAPTURE(i, chunks, stage.layers, stage.recompute_layers.value_or(0), text_of(stage.way.recompute));
      PartialStage priced = *partial_stage(pipeline, stage, pricer);
      const std::int64_t recomputed = recomputed_layers(pipeline, stage);
      if (pipeline.schedule == Schedule::one_f_one_b) {
        const PassSeconds seconds = priced.of_layers(first, first + stage.layers, recomputed);
        const PassTimes& compiled = times.stages.at(i);
        CHECK(seconds.forward_s == Approx(compiled.forward_s).epsilon(1e-9));
        CHECK(seconds.backward_s ==
              Approx(compiled.input_gradient_s + compiled.weight_gradient_s).epsilon(1e-9));
      }
      first += stage.layers;
      StagePosition position = position_of(pipeline, static_cast<int>(i));
      position.frees_layers = !splits_backward;
      if (splits_backward) add_put_off(priced.bytes, stage, pipeline, position, pricer);
      const double peak = priced.bytes.peak(stage.layers, recomputed, position);
      const double ratio = static_cast<double>(memory.at(i).peak) / peak;
      // The forms of stages that recompute alike count chunks as alike.
      if (!stage.recompute_layers && stage.layers % chunks != 0) continue;
      const double most_ratio = pipeline.schedule == Schedule::one_f_one_b ? 1.02 : 1.08;
      CHECK(ratio < (stage.layers % chunks == 0 ? most_ratio : 1.2));
      CHECK(ratio > (splits_backward ? 0.6 : 0.8));
      if (splits_backward) worst_split = std::max(worst_split, ratio);
      if (!stage.recompute_layers) continue;
      ++partial;
      least = std::min(least, ratio);
      most = std::max(most, ratio);
    }
  }
  CAPTURE(least, most, worst_split);
  CHECK(partial > least_of(150));
}

TEST_CASE("a stage recomputes no more layers than it must, and takes a time between those of none and all",
          "[plan]") {
  int parts = 0, none = 0, all = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const PartialBytes bytes = random_bytes(dice);
    const StagePosition position = random_position(dice);
    const std::int64_t layers = dice.one_of({1, 2, 5, 9, 16});
    std::optional<std::int64_t> least;
    for (std::int64_t each = 0; each <= layers && !least; ++each)
      if ((each % position.chunks == 0 || each == layers) && bytes.fits(layers, each, position)) least = each;
    const std::optional<std::int64_t> chosen = bytes.least_recomputed(layers, position);
    CHECK(chosen == least);
    if (!least) continue;
    (*least == 0 ? none : *least == layers ? all : parts) += 1;
    StageSeconds kept, again;
    kept.layers.emplace_back();
    again.layers.emplace_back();
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      kept.layers.push_back(kept.layers.back());
      again.layers.push_back(again.layers.back());
      const double forward_s = dice.one_of({1.0, 1.5});
      kept.layers.back() += {forward_s, 2 * forward_s, forward_s};
      again.layers.back() += {forward_s, (2 + dice.one_of({0.1, 1.0})) * forward_s, forward_s};
    }
    const PartialStage stage{kept, again, bytes};
    for (std::int64_t recomputed = 0; recomputed < layers; ++recomputed) {
      const double now_s = stage.of_layers(0, layers, recomputed).seconds();
      CHECK(now_s < stage.of_layers(0, layers, recomputed + 1).seconds());
      CHECK(now_s >= kept.of_layers(0, layers).seconds() * (1 - 1e-12));
      CHECK(now_s <= again.of_layers(0, layers).seconds() * (1 + 1e-12));
    }
  }
  CHECK(parts > 150);
  CHECK(none > 200);
  CHECK(all > 50);
}

TEST_CASE(
    "no stage that recomputes a part needs less than the least bytes, and more room never asks for more "
    "recompute",
    "[plan]") {
  int below = 0, fewer = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    PartialBytes bytes = random_bytes(dice);
    StagePosition position = random_position(dice);
    position.chunks = 1;
    const PartialBytes least{bytes.least(), bytes.least()};
    const std::int64_t layers = dice.one_of({1, 2, 5, 9, 16});
    const double whole = bytes.peak(layers, layers, position);
    for (std::int64_t recomputed = 1; recomputed <= layers; ++recomputed) {
      const double peak = bytes.peak(layers, recomputed, position);
      CHECK(least.peak(layers, layers, position) <= peak * (1 + 1e-12));
      below += peak < whole * (1 - 1e-12) ? 1 : 0;
    }
    const std::optional<std::int64_t> before = bytes.least_recomputed(layers, position);
    bytes.again.capacity = bytes.kept.capacity = 1.3 * bytes.kept.capacity;
    const std::optional<std::int64_t> after = bytes.least_recomputed(layers, position);
    if (!before) continue;
    REQUIRE(after);
    CHECK(*after <= *before);
    fewer += *after < *before ? 1 : 0;
  }
  CHECK(below > 50);
  CHECK(fewer > 200);
}

TEST_CASE("more memory never lengthens the best estimate, and a part of the layers is recomputed on the way",
          "[plan][slow]") {
  const std::function<bool()> always = [] { return true; };
  int partial = 0, shorter = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 2U : 5U); ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Job job = roomy_job(dice);
    job.cluster.groups[0].nodes = dice.one_of({1, 2});
    build_topology(job.cluster);
    job.train.global_batch = dice.one_of({8, 16});
    double before_s = std::numeric_limits<double>::infinity();
    for (double bytes = dice.one_of({3e5, 5e5}); bytes < 4e6; bytes *= 1.2) {
      job.cluster.groups[0].chip.memory_bytes.value = bytes;
      StagePricer pricer(job);
      PipelineForm form;
      form.most_chunks = 1;
      form.splits_backward = false;
      const PipelineSearch search = search_pipelines(job, pricer, 16, always, form);
      double best_s = std::numeric_limits<double>::infinity();
      for (const PlannedPipeline& pipeline : search.best) {
        best_s = std::min(best_s, pipeline.estimate_s);
        for (const PlannedStage& stage : pipeline.stages) partial += stage.recompute_layers ? 1 : 0;
      }
      CAPTURE(bytes);
      CHECK(best_s <= before_s * (1 + 2e-3));  // longest stages are told apart by a thousandth
      shorter += best_s < before_s * 0.999 ? 1 : 0;
      before_s = best_s;
    }
  }
  CHECK(shorter > (kSanitized ? 4 : 10));
  CHECK(partial > (kSanitized ? 20 : 50));
}

TEST_CASE("a pipeline that recomputes alike recomputes at least as much in every stage", "[plan]") {
  int changed = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Job job = roomy_job(dice);
    PlannedPipeline pipeline = random_pipeline(dice, job, 1);
    for (PlannedStage& stage : pipeline.stages)
      if (dice.once_in(3)) stage = {{0, stage.way.tensor_parallel, Recompute::none}, stage.layers};
    const std::optional<PlannedPipeline> alike = recomputing_alike(pipeline);
    if (!alike) continue;
    ++changed;
    for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
      const PlannedStage &before = pipeline.stages[i], &after = alike->stages[i];
      CHECK(after.way.recompute == alike->stages[0].way.recompute);
      CHECK(after.recompute_layers == alike->stages[0].recompute_layers);
      CHECK(after.layers == before.layers);
      if (before.way.recompute == Recompute::none) continue;
      CHECK((before.way.recompute == after.way.recompute || after.way.recompute == Recompute::full));
      CHECK(recomputed_layers(*alike, after) >= recomputed_layers(pipeline, before));
    }
    CHECK(!recomputing_alike(*alike));
  }
  CHECK(changed > 100);
}

TEST_CASE("where layers keep nothing, no stage has less than one that recomputes", "[plan]") {
  PartialBytes bytes;
  bytes.kept.fixed = 3;
  bytes.again.fixed = 5;
  bytes.again.layer = 2;
  CHECK(bytes.least().fixed == 5);
  CHECK(bytes.least().layer == 2);
  bytes.kept.layer_in_flight = bytes.again.layer_in_flight =
      1;  // what recomputing needs beside the layers is spared
  CHECK(bytes.least().fixed == 3);
}
