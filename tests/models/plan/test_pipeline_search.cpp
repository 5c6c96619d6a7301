// What closed forms say of pipelines, against compiled jobs and against every pipeline of small clusters.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <set>

#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/compile/predicted_order.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/plan/closed_form.hpp"
#include "models/plan/least_pipeline.hpp"
#include "models/plan/partial_recompute.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/pipeline_rows.hpp"
#include "models/plan/pipeline_search.hpp"
#include "models/plan/segment_places.hpp"
#include "models/schedule/schedule.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

const std::function<bool()> kAlways = [] { return true; };

// One to three groups of one or two nodes. Their memory holds a stage of two or three layers, or all.
Job small_job(unsigned seed) {
  Dice dice(seed);
  Job job = tiny_job({1, 1, 1}, dice.one_of({Family::gpt2, Family::llama}));
  job.transformer.layers = dice.one_of({3, 4, 5});
  job.train.global_batch = dice.one_of({2, 4, 6});
  const NodeGroup node = job.cluster.groups[0];
  job.cluster.groups.clear();
  for (int i = dice.one_of({1, 2, 2, 3}); i > 0; --i) {
    NodeGroup& group = job.cluster.groups.emplace_back(node);
    group.name = "group" + std::to_string(i);
    group.nodes = dice.one_of({1, 2});
    group.chips_per_node = dice.one_of({1, 2});
    group.nics = {{NicKind::ethernet, 1, 1e9, 1e-6}};
    group.inside = {FabricKind::loopback, 1e9, 0};
    for (auto& [format, peak] : group.chip.peak_flops) peak.value *= dice.one_of({0.3, 1.0, 2.0});
    group.chip.software.pass_overhead = {dice.one_of({0.0, 1e-5}), "assumed"};
    group.chip.memory_bytes.value = dice.one_of({2e5, 4e5, 4e9});
  }
  for (std::size_t i = 0; i < job.cluster.groups.size(); ++i)
    for (std::size_t j = i + 1; j < job.cluster.groups.size(); ++j)
      job.cluster.links.push_back({job.cluster.groups[i].name, job.cluster.groups[j].name});
  build_topology(job.cluster);
  return job;
}

double makespan_s(const PlannedPipeline& pipeline, std::int64_t layers, StagePricer& pricer) {
  ScheduleTimes times;
  std::int64_t first = 0;
  for (const PlannedStage& stage : pipeline.stages) {
    const PassSeconds seconds =
        partial_stage(pipeline, stage, pricer)
            ->of_layers(first, first + stage.layers, recomputed_layers(pipeline, stage));
    times.stages.push_back({seconds.forward_s, seconds.backward_s, 0});
    first += stage.layers;
  }
  REQUIRE(first == layers);
  const PipelineShape shape{static_cast<int>(pipeline.stages.size()), 1,
                            static_cast<int>(pipeline.micro_batches)};
  return evaluate(make_timetable(Schedule::one_f_one_b, shape), times)->makespan_s;
}

// Every pipeline: groups in any order, any number of stages, layers and recompute of each. It knows nothing of how the
// search goes about it.
class Everything {
 public:
  Everything(const Job& job, StagePricer& pricer) : job_(job), pricer_(pricer) {}
  double least_s() {
    const std::int64_t batch = job_.train.global_batch;
    for (std::int64_t b = 1; b <= batch; ++b)
      for (std::int64_t d = 1; b * d <= batch; ++d) {
        if (batch % (b * d) != 0) continue;
        pipeline_ = {};
        pipeline_.micro_batch = b;
        pipeline_.replicas = d;
        pipeline_.micro_batches = batch / b / d;
        used_.assign(job_.cluster.groups.size(), false);
        extend(-1, 0, 0, 0);
      }
    return least_s_;
  }
  std::int64_t pipelines() const { return pipelines_; }

 private:
  // Adds one more stage after `layers` layers: on the same group cut alike, or on one not used yet.
  void extend(int group, std::int64_t cut, std::int64_t chips_used, std::int64_t layers) {
    if (layers == job_.transformer.layers) return take();
    if (group >= 0) add_stage(group, cut, chips_used, layers);
    for (std::size_t next = 0; next < used_.size(); ++next) {
      if (used_[next]) continue;
      used_[next] = true;
      for (const std::int64_t next_cut : {1, 2}) add_stage(static_cast<int>(next), next_cut, 0, layers);
      used_[next] = false;
    }
  }
  void add_stage(int group, std::int64_t cut, std::int64_t chips_used, std::int64_t layers) {
    const NodeGroup& nodes = job_.cluster.groups[static_cast<std::size_t>(group)];
    chips_used += cut * pipeline_.replicas;
    if (chips_used > std::int64_t{nodes.nodes} * nodes.chips_per_node) return;
    for (const Recompute& recompute : pricer_.recomputes())
      for (std::int64_t more = 1; layers + more <= job_.transformer.layers; ++more) {
        const StageWay way{group, cut, recompute};
        if (pricer_.price(way, pipeline_.micro_batch, pipeline_.replicas) == nullptr) return;
        std::vector<std::optional<std::int64_t>> parts = {std::nullopt};
        for (std::int64_t part = 1; recompute != Recompute::none && part < more; ++part)
          parts.push_back(part);
        for (const std::optional<std::int64_t>& part : parts) {
          pipeline_.stages.push_back({way, more, part});
          extend(group, cut, chips_used, layers + more);
          pipeline_.stages.pop_back();
        }
      }
  }
  void take() {
    const auto stages = static_cast<std::int64_t>(pipeline_.stages.size());
    for (std::int64_t i = 0; i < stages; ++i) {
      const PlannedStage& stage = pipeline_.stages[static_cast<std::size_t>(i)];
      const auto flying = static_cast<double>(std::min(stages - i, pipeline_.micro_batches));
      if (!partial_stage(pipeline_, stage, pricer_)
               ->bytes.fits(stage.layers, recomputed_layers(pipeline_, stage),
                            {flying, i == 0, i + 1 == stages, 1, flying}))
        return;
    }
    ++pipelines_;
    least_s_ = std::min(least_s_, makespan_s(pipeline_, job_.transformer.layers, pricer_));
  }

  const Job& job_;
  StagePricer& pricer_;
  PlannedPipeline pipeline_;
  std::vector<bool> used_;
  double least_s_ = std::numeric_limits<double>::infinity();
  std::int64_t pipelines_ = 0;
};

}  // namespace

TEST_CASE("the bound of a form is below every pipeline of it, and the proposals are near the best",
          "[plan][slow]") {
  PipelineForm form;
  form.reduces_last = false;  // a timetable has no gradients
  int feasible = 0;
  double sum = 0, bounds = 0;
  for (unsigned seed = 1; seed <= drawn_of(60U); ++seed) {
    CAPTURE(seed);
    const Job job = small_job(seed);
    StagePricer pricer(job);
    const PipelineSearch search = search_pipelines(job, pricer, 64, kAlways, form);
    REQUIRE(search.is_whole);
    Everything everything(job, pricer);
    const double least_s = everything.least_s();
    CHECK((search.best.empty() == (everything.pipelines() == 0)));
    CHECK(search.bound_s <= least_s * (1 + 1e-9));
    if (search.best.empty()) continue;
    ++feasible;
    double proposed_s = std::numeric_limits<double>::infinity();
    for (const PlannedPipeline& pipeline : search.best)
      if (pipeline.schedule == Schedule::one_f_one_b)
        proposed_s = std::min(proposed_s, makespan_s(pipeline, job.transformer.layers, pricer));
    CHECK(proposed_s >= least_s * (1 - 1e-9));
    CHECK(proposed_s <= least_s * 1.25);
    sum += proposed_s / least_s - 1;
    bounds += search.bound_s / least_s;
  }
  CHECK(feasible > least_of(25));
  CHECK(sum / feasible < 0.02);
  CHECK(bounds / feasible > 0.85);
}

TEST_CASE("what all orders of some segments have in common holds for each pipeline on them", "[plan]") {
  int pipelines = 0, alike = 0;
  double closest = 0, farthest = 1;
  for (unsigned seed = 1; seed <= (kSanitized ? 10 : 120); ++seed) {
    CAPTURE(seed);
    const Job job = small_job(seed);
    StagePricer pricer(job);
    const PipelineEstimator estimator(job, pricer);
    const ClosedForm closed_form(job, pricer);
    for (const PlannedPipeline& pipeline : search_pipelines(job, pricer, 24, kAlways).best) {
      PlannedPipeline shape = pipeline;
      shape.stages.clear();
      Row segments;
      for (const PlannedStage& stage : pipeline.stages)
        if (segments.empty() || segments.back().group != stage.way.group)
          segments.push_back({stage.way.group, stage.way.tensor_parallel});
      SegmentPlaces places(job, pricer, closed_form);
      std::int64_t stages = 0;
      for (const RowSegment& segment : segments) stages += places.at(shape, segment).stages;
      const std::vector<double> seconds = estimator.stage_seconds(pipeline);
      const double longest_s = *std::max_element(seconds.begin(), seconds.end());
      const double least_s = places.least_longest_s(shape, segments);
      CHECK(least_s <= longest_s * (1 + 1e-9));
      CHECK(places.can_hold_model(shape, segments, stages, longest_s));
      CHECK_FALSE(places.can_hold_model(shape, segments, stages, 0.99 * least_s));
      double gradients_s = 0;
      for (const PlannedStage& stage : pipeline.stages)
        gradients_s = std::max(gradients_s, closed_form.gradients_s(shape, stage.way, stage.layers));
      const double least_gradients_s = places.least_gradients_s(shape, segments, longest_s);
      CHECK(least_gradients_s <= gradients_s * (1 + 1e-9));
      alike += least_gradients_s > 0 && least_gradients_s > gradients_s * (1 - 1e-9) ? 1 : 0;
      closest = std::max(closest, least_s / longest_s);
      farthest = std::min(farthest, least_s / longest_s);
      ++pipelines;
    }
  }
  CHECK(pipelines > (kSanitized ? 20 : 400));
  CHECK(closest > 0.98);  // the ends of the model take little
  CHECK(farthest < 0.9);
  CHECK(alike > (kSanitized ? 5 : 100));
}

TEST_CASE("a type of chip needs the bytes that it needs without the others", "[plan]") {
  int shared = 0;
  for (unsigned seed = 1; seed <= drawn_of(60U); ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Job job = small_job(seed);
    for (NodeGroup& group : job.cluster.groups) {
      ChipSoftware& software = group.chip.software;
      if (dice.one_of({0, 1, 2}) == 0) software.reserved_memory = {2e4, "assumed"};
      if (dice.one_of({0, 1, 2}) == 0) software.unfused_attention = {2, "assumed"};
      if (dice.one_of({0, 1, 2}) == 0) software.kept_logits = {6, "assumed"};
    }
    build_topology(job.cluster);
    StagePricer together(job);
    for (std::size_t group = 0; group < job.cluster.groups.size(); ++group) {
      Job alone = job;
      alone.cluster.groups = {job.cluster.groups[group]};
      alone.cluster.links.clear();
      build_topology(alone.cluster);
      StagePricer by_itself(alone);
      for (const Recompute& recompute : together.recomputes()) {
        const StagePrice* const one = together.price({static_cast<int>(group), 1, recompute}, 1, 2);
        const StagePrice* const other = by_itself.price({0, 1, recompute}, 1, 2);
        REQUIRE((one == nullptr) == (other == nullptr));
        if (one == nullptr) continue;
        CHECK(one->bytes.fixed == other->bytes.fixed);
        CHECK(one->bytes.in_flight == other->bytes.in_flight);
        CHECK(one->bytes.layer == other->bytes.layer);
        CHECK(one->bytes.layer_in_flight == other->bytes.layer_in_flight);
        CHECK(one->bytes.first == other->bytes.first);
        CHECK(one->bytes.last == other->bytes.last);
        CHECK(one->bytes.capacity == other->bytes.capacity);
        shared += group > 0 ? 1 : 0;
      }
    }
  }
  CHECK(shared > least_of(60));
}

TEST_CASE("prices of stages are those of compiled pipelines", "[plan][slow]") {
  int plain = 0, chunked = 0, partial = 0;
  for (unsigned seed = 1; seed <= drawn_of(80U); ++seed) {
    CAPTURE(seed);
    const Job job = small_job(seed);
    StagePricer pricer(job);
    for (const PlannedPipeline& pipeline : search_pipelines(job, pricer, 8, kAlways).best) {
      const Job planned = with_pipeline(job, pipeline);
      validate(planned.transformer, planned.train, planned.strategy);
      const Program program = compile(planned);
      const ScheduleTimes times = predicted_times(program, planned.cluster, 0);
      // The linear form is near the count: a stage that it lets in needs at most a tenth more than its chip has.
      for (const StageMemory& stage : memory_by_stage(program, planned.cluster, planned.train.fragmentation))
        CHECK(static_cast<double>(stage.peak) <= 1.1 * static_cast<double>(stage.capacity));
      (pipeline.chunks > 1 ? chunked : plain) += 1;
      for (const PlannedStage& stage : pipeline.stages) partial += stage.recompute_layers ? 1 : 0;
      if (pipeline.schedule != Schedule::one_f_one_b) continue;
      std::int64_t first = 0;
      for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
        const PlannedStage& stage = pipeline.stages[i];
        const PartialStage price = *partial_stage(pipeline, stage, pricer);
        const PassSeconds seconds =
            price.of_layers(first, first + stage.layers, recomputed_layers(pipeline, stage));
        first += stage.layers;
        const PassTimes& compiled = times.stages.at(i);
        CHECK(seconds.forward_s == Approx(compiled.forward_s).epsilon(1e-9));
        CHECK(seconds.backward_s ==
              Approx(compiled.input_gradient_s + compiled.weight_gradient_s).epsilon(1e-9));
        // A pass's own seconds are in its first kernel, which may be of either gradient.
        CHECK(seconds.weights_s ==
              Approx(compiled.weight_gradient_s).epsilon(1e-9).margin(1.001 * price.kept.pass.backward_s));
      }
    }
  }
  CHECK(plain > least_of(50));
  CHECK(chunked >= least_of(5));
  CHECK(partial > least_of(5));
}

TEST_CASE("stages with as many chunks as even layers allow are found, with a light head or a heavier one",
          "[plan]") {
  for (const std::int64_t vocabulary : {64, 128, 256, 512}) {
    Job job = tiny_job({1, 1, 1}, Family::gpt2);
    job.transformer.layers = 8;
    job.transformer.vocabulary = vocabulary;
    job.train.global_batch = 4;
    NodeGroup& group = job.cluster.groups[0];
    group.nodes = 2;
    group.chips_per_node = 1;
    group.nics = {{NicKind::ethernet, 1, 1e9, 1e-6}};
    group.chip.memory_bytes.value = 4e9;
    build_topology(job.cluster);
    StagePricer pricer(job);
    const PipelineSearch search = search_pipelines(job, pricer, 300, kAlways);
    INFO("vocabulary " << vocabulary);
    CHECK(std::any_of(search.best.begin(), search.best.end(), [](const PlannedPipeline& each) {
      return each.chunks == 4 && each.stages.size() == 2 && each.stages[0].layers == each.stages[1].layers;
    }));
    for (std::size_t i = 0; i < search.best.size(); ++i)
      for (std::size_t j = i + 1; j < search.best.size(); ++j) CHECK(search.best[i] != search.best[j]);
  }
}

TEST_CASE("chips alike are as slow together whether they stand in one group or in several", "[plan]") {
  Job one = tiny_job({1, 1, 1}, Family::llama);
  NodeGroup& group = one.cluster.groups[0];
  group.nodes = 32;
  group.chips_per_node = 1;
  group.nics = {{NicKind::ethernet, 1, 1e9, 1e-6}};
  group.chip.software.variation = {0.05, "assumed"};
  one.train.global_batch = 64;
  Job two = one;
  two.cluster.groups[0].nodes = 12;
  two.cluster.groups.push_back(two.cluster.groups[0]);
  two.cluster.groups[1].name = "more";
  two.cluster.groups[1].nodes = 20;
  build_topology(one.cluster);
  build_topology(two.cluster);
  StagePricer of_one(one), of_two(two);
  CHECK(of_one.slowness(0) > 1);
  CHECK(of_two.slowness(0) == Approx(of_one.slowness(0)));
  CHECK(of_two.slowness(1) == Approx(of_one.slowness(0)));
  CHECK(of_two.few_ranks_step_s() == Approx(of_one.few_ranks_step_s()));
  CHECK(of_one.few_ranks_step_s() ==
        Approx(2 * 64 * of_one.least_work(0).seconds() / 32));  // half of the chips take twice as long
}

TEST_CASE("a search whose time ends before it has looked at all says so", "[plan]") {
  for (unsigned seed = 1; seed <= (kSanitized ? 1 : 4); ++seed) {
    const Job job = small_job(seed);
    const PipelineForm form;
    StagePricer pricer(job);
    int asked = 0;
    const PipelineSearch whole = search_pipelines(
        job, pricer, 64,
        [&] {
          ++asked;
          return true;
        },
        form);
    CHECK(whole.is_whole);
    for (int most = 0; most < asked; ++most) {
      int left = most;
      const PipelineSearch cut = search_pipelines(
          job, pricer, 64, [&] { return left-- > 0; }, form);
      CAPTURE(seed, most, asked);
      CHECK_FALSE(cut.is_whole);
    }
  }
}

TEST_CASE("a family without a pipeline below the limit has none, whatever was found in another one",
          "[plan]") {
  int feasible = 0;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    const Job job = small_job(seed);
    StagePricer pricer(job);
    LeastPipeline least(job, pricer, {});
    ShapeFamily family;
    const std::optional<PlannedPipeline> first = least.below(family, std::numeric_limits<double>::infinity());
    if (!first) continue;
    ++feasible;
    CHECK_FALSE(least.below(family, first->estimate_s / 2));
    const std::optional<PlannedPipeline> again = least.below(family, first->estimate_s * 1.01);
    REQUIRE(again);
    CHECK(again->estimate_s == first->estimate_s);
  }
  CHECK(feasible > 0);
}

TEST_CASE("no step of a model with experts takes less work than the bound, wherever these are weighed",
          "[plan]") {
  int models = 0;
  for (const std::string& name : variants())
    for (const std::int64_t sequences : {1, 4}) {
      Job job = tiny_job({1, 1, 1}, tiny_variant(name));
      if (job.transformer.experts.count == 0) continue;
      ++models;
      job.train.global_batch = job.train.micro_batch = sequences;
      job.strategy.templates[0].micro_batches = 1;
      const double least_s = static_cast<double>(sequences) * StagePricer(job).least_work(0).seconds();
      for (const ExpertWeights weights : every<ExpertWeights>()) {
        job.strategy.expert_weights = weights;
        const Program program = compile(job);
        double seconds = 0;
        for (const Block& block : program.program_of(Rank(0)).blocks)
          for (const Kernel& kernel : block.kernels)
            seconds += kernel_time(kernel, program.precision, job.cluster.groups[0].chip, nullptr).seconds;
        CAPTURE(name, sequences, name_of(weights));
        CHECK(least_s <= seconds * (1 + 1e-9));
      }
    }
  CHECK(models > 4);
}
