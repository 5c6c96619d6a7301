// Proposals whose chunks lie in a V: their timetables are the schedules' own, so that a simulation takes about as long.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <set>
#include <vector>

#include "models/plan/memory_repair.hpp"
#include "models/plan/planned_recomputes.hpp"
#include "models/plan/v_rows.hpp"
#include "models/plan/v_search.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr auto kAlways = [] { return true; };

Job any_dense_job(unsigned seed) {
  Dice dice(seed);
  const int sequence = dice.one_of({512, 1024}), global_batch = dice.one_of({32, 64, 96});
  const auto cluster = dice.one_of<std::string>(
      {"dgx-a100-4", "holmes-ib-4", "mi300x-nodes", "hethub-pair-a-b", "hethub-pair-nvidia-a"});
  const auto model = dice.one_of<std::string>({"gpt2-xl", "llama-2-13b", "qwen3-8b", "llama-2-7b"});
  const std::string text = fmt::format(
      "model: {}\ncluster: {}\ntrain: {{global_batch: {}, sequence: {}, precision: bf16}}\nplan: {{}}\n",
      model, cluster, global_batch, sequence);
  Job job = read_scenario(parse_yaml(text, "text"), "text", ScenarioUse::plan).job;
  job.fidelity.fold = true;
  return job;
}

}  // namespace

TEST_CASE("pipelines in a V are legal, hold the model, and take about as long as their timetables",
          "[plan][slow]") {
  const Judge judge = simulating_judge(false);
  int stood = 0, all = 0;
  double sum = 0;
  std::set<Schedule> schedules;
  for (unsigned seed = 1; seed <= (kSanitized ? 3 : 10); ++seed) {
    CAPTURE(seed);
    const Job job = any_dense_job(seed);
    StagePricer pricer(job);
    double before_s = 0;
    for (const PlannedPipeline& pipeline : search_v_pipelines(job, pricer, {}, 4, 1e9, kAlways).best) {
      CHECK(pipeline.estimate_s >= before_s);
      before_s = pipeline.estimate_s;
      const Job planned = with_pipeline(job, pipeline);
      CAPTURE(print(planned.strategy), pipeline.estimate_s);
      validate(planned.transformer, planned.train, planned.strategy);
      const Verdict verdict = judge({planned}).front();
      ++all;
      if (!verdict.stands()) continue;  // what is put off needs more than the form counts
      ++stood;
      schedules.insert(pipeline.schedule);
      const double ratio = verdict.step_s / pipeline.estimate_s;
      CHECK(ratio > 0.85);
      CHECK(ratio < 1.6);  // short steps whose gradients the network holds up
      sum += ratio;
    }
  }
  CHECK(all > (kSanitized ? 8 : 30));
  CHECK(stood > 0.7 * all);
  CHECK(sum / stood < (kSanitized ? 1.3 : 1.2));  // three draws are too few for a mean
  CHECK((kSanitized || schedules.size() == 2));
}

TEST_CASE("pipelines in a V fit the memory that there is, of which some recompute for it", "[plan][slow]") {
  const Judge judge = simulating_judge(false);
  int stood = 0, all = 0, recomputing = 0, putting_off_less = 0;
  for (unsigned seed = 11; seed <= (kSanitized ? 13 : 30); ++seed) {
    Job job = any_dense_job(seed);
    for (NodeGroup& group : job.cluster.groups) group.chip.memory_bytes.value *= seed % 2 == 0 ? 0.1 : 0.15;
    StagePricer pricer(job);
    for (const PlannedPipeline& pipeline : search_v_pipelines(job, pricer, {}, 3, 1e9, kAlways).best) {
      const Job planned = with_pipeline(job, pipeline);
      const Verdict verdict = judge({planned}).front();
      CAPTURE(seed, print(planned.strategy), verdict.refused);
      ++all;
      stood += verdict.stands() ? 1 : 0;
      putting_off_less += pipeline.put_off == PutOff::memory ? 1 : 0;
      recomputing +=
          std::any_of(pipeline.stages.begin(), pipeline.stages.end(),
                      [](const PlannedStage& stage) { return stage.way.recompute != Recompute::none; });
    }
  }
  CHECK(all > (kSanitized ? 5 : 40));
  CHECK(stood > 0.75 * all);  // both ends on one stage, and parts that recompute, are estimated
  CHECK((kSanitized || recomputing > 8));
  CHECK((kSanitized || putting_off_less > 3));
}

TEST_CASE("in a V on unlike chips no stage can give a layer away and leave the longest one shorter",
          "[plan][slow]") {
  int moved = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const Job job = any_dense_job(seed);
    if (job.cluster.groups.size() < 2) continue;
    StagePricer pricer(job);
    for (const PlannedPipeline& pipeline : search_v_pipelines(job, pricer, {}, 4, 1e9, kAlways).best) {
      const std::size_t stages = pipeline.stages.size();
      std::vector<double> seconds, layer_s;
      std::vector<std::int64_t> most;
      for (std::size_t i = 0; i < stages; ++i) {
        const PlannedStage& stage = pipeline.stages[i];
        const StagePrice& price = *pricer.price(stage.way, pipeline.micro_batch, pipeline.replicas);
        const double ends_s = i == 0 ? price.embedding.seconds() + price.head.seconds() : 0;
        layer_s.push_back(price.least_layer_s);
        seconds.push_back(2 * price.pass.seconds() + ends_s +
                          static_cast<double>(stage.layers) * price.least_layer_s);
        // Micro-batches in flight are more than one.
        most.push_back(price.bytes.most_layers(1, i == 0, i == 0));
      }
      const auto longest =
          static_cast<std::size_t>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
      if (pipeline.stages[longest].layers <= 2) continue;  // one for each way of the V
      for (std::size_t i = 0; i < stages; ++i) {
        // What the memory holds back is not told from what it does not; where it is ample, time alone decides.
        if (i == longest || pipeline.stages[i].layers * 4 > most[i]) continue;
        CHECK(seconds[i] + layer_s[i] >= seconds[longest] * (1 - 1e-9));
        ++moved;
      }
    }
  }
  CHECK(moved > 20);
}

TEST_CASE("whichever group a cluster names first, the best pipeline in a V is as fast", "[plan][slow]") {
  int seen = 0, begun_on_second = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 15 : 60); ++seed) {
    CAPTURE(seed);
    const Job job = any_dense_job(seed);
    if (job.cluster.groups.size() != 2) continue;
    Job turned = job;
    std::reverse(turned.cluster.groups.begin(), turned.cluster.groups.end());
    build_topology(turned.cluster);
    StagePricer pricer(job), turned_pricer(turned);
    const auto best = search_v_pipelines(job, pricer, {}, 1, 1e9, kAlways).best;
    const auto best_turned = search_v_pipelines(turned, turned_pricer, {}, 1, 1e9, kAlways).best;
    REQUIRE(best.size() == best_turned.size());
    if (best.empty()) continue;
    CHECK(best[0].estimate_s == Approx(best_turned[0].estimate_s).epsilon(1e-9));
    ++seen;
    begun_on_second += best[0].stages.front().way.group == 1 ? 1 : 0;
  }
  CHECK(seen > (kSanitized ? 2 : 15));
  CHECK((kSanitized || begun_on_second > 2));
}

TEST_CASE("what a form rules out is in no V: chunks, split backwards, other numbers of stages or replicas",
          "[plan]") {
  const Job job = any_dense_job(1);
  StagePricer pricer(job);
  const auto search = [&](const PipelineForm& form) {
    return search_v_pipelines(job, pricer, form, 8, 1e9, kAlways).best;
  };
  REQUIRE(!search({}).empty());
  PipelineForm form;
  form.most_chunks = 1;
  CHECK(search(form).empty());
  form = {};
  form.splits_backward = false;
  CHECK(search(form).empty());
  form = {};
  form.replicas = 2;
  for (const PlannedPipeline& pipeline : search(form)) CHECK(pipeline.replicas == 2);
  form = {};
  form.most_stages = 4;
  for (const PlannedPipeline& pipeline : search(form)) CHECK(pipeline.stages.size() <= 4);
  form.stages = 2;
  for (const PlannedPipeline& pipeline : search(form)) CHECK(pipeline.stages.size() == 2);
  const double least_s = search({}).front().estimate_s;
  CHECK(search_v_pipelines(job, pricer, {}, 8, least_s, kAlways).best.empty());
}

TEST_CASE("a search whose time is over still finds a pipeline in a V, where there is time for any",
          "[plan]") {
  const auto never = [] { return false; };
  const Job job = any_dense_job(1);
  StagePricer pricer(job);
  CHECK(search_v_pipelines(job, pricer, {}, 8, 1e9, never).best.empty());
  const VSearchResult any = search_v_pipelines(job, pricer, {}, 8, 1e9, never, kAlways);
  CHECK(!any.best.empty());
  CHECK(!any.is_whole);
  // A plan that has no time to look for its first strategies has one of them all the same.
  const Plan first = plan(job, simulating_judge(false),
                          {.evaluations = 1, .has_search_time = kAlways, .has_first_time = never});
  const std::set<Schedule> in_v{Schedule::zb_v, Schedule::dualpipe_v};
  CHECK(in_v.contains(first.job.strategy.schedule));
}

TEST_CASE("no stage of a V has memory for more layers than its row says at once, experts or none", "[plan]") {
  int limited = 0;
  for (const std::string model : {"llama-3-70b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b"}) {
    if (kSanitized && model != "deepseek-v2-lite") continue;
    const std::string text = fmt::format(
        "model: {}\ncluster: dgx-a100-4\ntrain: {{global_batch: 32, sequence: 1024}}\nplan: {{}}\n", model);
    const Job job = read_scenario(parse_yaml(text, "text"), "text", ScenarioUse::plan).job;
    StagePricer pricer(job);
    const PipelineForm form;
    VRows rows(job, pricer, form);
    std::vector<StageClass> classes;
    for (std::size_t shape = 0; shape < rows.shape_count(); ++shape) {
      rows.add_shape();
      for (std::size_t row = 0; row < rows.row_count(); ++row) {
        rows.set_classes(shape, row, classes);
        for (const StageClass& each : classes) {
          const ReplicaShape& replicas = rows.shape(shape);
          const StageWay way = rows.way_of(shape, each);
          CAPTURE(model, replicas.replicas, way.tensor_parallel, way.context_parallel, way.expert_parallel);
          const StagePrice* const price = pricer.price(way, replicas.micro_batch, replicas.replicas);
          if (price == nullptr) continue;
          const std::int64_t most = price->bytes.most_layers(0, false, false);
          CHECK(std::min(most, job.transformer.layers) <= each.most_layers);
          limited += each.most_layers < job.transformer.layers ? 1 : 0;
        }
      }
    }
  }
  CHECK(limited > 20);
}

TEST_CASE("pipelines that lack a little memory are judged again with more recomputed", "[plan][slow]") {
  Job job = any_dense_job(4);  // of sixty jobs and memories that were tried, one where it matters
  for (NodeGroup& group : job.cluster.groups) group.chip.memory_bytes.value *= 0.25;
  std::vector<Job> refused;
  std::set<std::string> judged;
  const Judge judge = [&, real = simulating_judge(false)](const std::vector<Job>& jobs) {
    std::vector<Verdict> verdicts = real(jobs);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      judged.insert(print(jobs[i].strategy));
      if (!verdicts[i].stands()) refused.push_back(jobs[i]);
    }
    return verdicts;
  };
  plan(job, judge, {.evaluations = 100});
  int again = 0;
  for (const Job& each : refused)
    if (const auto fits = with_more_recomputed(each, planned_recomputes(each.transformer)))
      again += judged.contains(print(fits->strategy)) ? 1 : 0;
  CHECK(again > 0);
}

TEST_CASE("no pipeline is slower because stages may recompute more modules than attention", "[plan][slow]") {
  int shorter = 0, all = 0;
  for (const std::string model : {"llama-2-13b", "llama-3-70b", "gpt3-175b"})
    for (const double share : {0.4, 0.6, 1.0}) {
      if (kSanitized && share < 1) continue;
      Job scarce =
          read_scenario(
              parse_yaml(fmt::format("model: {}\ncluster: dgx-h100-pod\ntrain: "
                                     "{{global_batch: 256, sequence: 2048, precision: bf16}}\nplan: {{}}\n",
                                     model),
                         "text"),
              "text", ScenarioUse::plan)
              .job;
      for (NodeGroup& group : scarce.cluster.groups) group.chip.memory_bytes.value *= share;
      PipelineForm form;
      form.recomputes_modules = false;
      CAPTURE(model, share);
      StagePricer pricer(scarce), few_pricer(scarce, {}, form.recomputes());
      const auto best_s = [](const std::vector<PlannedPipeline>& best) {
        return best.empty() ? std::numeric_limits<double>::infinity() : best.front().estimate_s;
      };
      const double v_s = best_s(search_v_pipelines(scarce, pricer, {}, 1, 1e9, kAlways).best);
      const double few_v_s = best_s(search_v_pipelines(scarce, few_pricer, form, 1, 1e9, kAlways).best);
      CHECK(v_s <= few_v_s * (1 + 1e-9));
      const double s = best_s(search_pipelines(scarce, pricer, 1, kAlways).best);
      const double few_s = best_s(search_pipelines(scarce, few_pricer, 1, kAlways, form).best);
      CHECK(s <= few_s * (1 + 1e-9));
      shorter += v_s < few_v_s || s < few_s ? 1 : 0;
      ++all;
    }
  INFO(shorter << " of " << all);
  CHECK((kSanitized || shorter > 3));
}

TEST_CASE("more memory, its bandwidth or more FLOP/s never lengthen the best pipeline in a V",
          "[plan][slow]") {
  const auto best_s = [](const Job& job) {
    StagePricer pricer(job);
    const auto best = search_v_pipelines(job, pricer, {}, 1, 1e9, kAlways).best;
    return best.empty() ? std::numeric_limits<double>::infinity() : best.front().estimate_s;
  };
  int shorter = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 2 : 8); ++seed) {
    CAPTURE(seed);
    const Job job = any_dense_job(seed);
    double before_s = std::numeric_limits<double>::infinity();
    for (const double share : {0.3, 0.4, 0.6, 0.8, 1.0, 1.5}) {
      Job with_memory = job;
      for (NodeGroup& group : with_memory.cluster.groups) group.chip.memory_bytes.value *= share;
      const double now_s = best_s(with_memory);
      CAPTURE(share);
      CHECK(now_s <= before_s * (1 + 1e-9));
      shorter += now_s < before_s ? 1 : 0;
      before_s = now_s;
    }
    const double as_it_is_s = best_s(job);
    Job with_bandwidth = job, with_flops = job;
    for (NodeGroup& group : with_bandwidth.cluster.groups) group.chip.memory_bandwidth.value *= 1.2;
    for (NodeGroup& group : with_flops.cluster.groups)
      for (auto& [format, peak] : group.chip.peak_flops) peak.value *= 1.2;
    CHECK(best_s(with_bandwidth) <= as_it_is_s * (1 + 1e-9));
    CHECK(best_s(with_flops) <= as_it_is_s * (1 + 1e-9));
  }
  CHECK(shorter > (kSanitized ? 1 : 8));
}
