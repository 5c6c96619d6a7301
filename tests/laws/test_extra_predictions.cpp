// Modules that predict further tokens train the same function however a job is cut, and both worlds do the same.
#include "models/compile/compile.hpp"
#include "models/schedule/schedule.hpp"
#include "tests/support/context_jobs.hpp"
#include "tests/support/laws.hpp"

using namespace motley;

namespace {

TrainResult trained(const Job& job, std::int64_t steps = 20) {
  TrainOptions options;
  options.steps = steps;
  return train_in_process(job, compile(job), tests::tiny_text(), options);
}

void check_both_losses(const Job& job, const TrainResult& expected) {
  INFO(job.transformer.name << "\n" << print(job.strategy));
  const std::size_t steps = std::min(expected.losses.size(), tests::compared_steps);
  const TrainResult result = trained(job, static_cast<std::int64_t>(steps));
  REQUIRE(result.losses.size() == steps);
  REQUIRE(result.extra_losses.size() == steps);
  for (std::size_t step = 0; step < steps; ++step) {
    INFO("step " << step);
    REQUIRE(result.losses[step] == Approx(expected.losses[step]).margin(1e-5).epsilon(0));
    REQUIRE(result.extra_losses[step] == Approx(expected.extra_losses[step]).margin(1e-5).epsilon(0));
  }
}

}  // namespace

TEST_CASE("what predicts further tokens trains as on one rank however a job is cut", "[slow]") {
  const std::string name = GENERATE("mistral", "qwen2", "deepseek-v3");
  const Transformer transformer = tests::with_extra_predictions(tests::tiny_variant(name));
  const TrainResult alone = trained(tests::tiny_job({1, 1, 1}, transformer));
  REQUIRE(alone.extra_losses.size() == 20);
  REQUIRE(alone.extra_losses.back() <
          alone.extra_losses.front() - 0.05);  // it learns, so that equal losses mean something
  for (tests::Degrees degrees :
       {tests::Degrees{2, 1, 1}, {1, 2, 1}, {1, 4, 1}, {2, 2, 1}, {1, 2, 2}, {2, 1, 2}})
    for (bool other : {false, true})
      for (int zero : {0, 1, 3}) {
        if (zero > 0 && degrees.dp == 1) continue;
        Job job = tests::tiny_job(degrees, transformer);
        job.strategy.zero = zero;
        job.strategy.sequence_parallel = other && degrees.tp > 1;
        job.strategy.overlap_gradients = other;
        job.strategy.bucket_bytes = 10'000;
        job.strategy.recompute = other ? Recompute::full : Recompute::none;
        job.fidelity.tensor_parallel = other ? CollectiveLevel::fluid : CollectiveLevel::formula;
        if (degrees.pp > 1 && other) job.strategy.schedule = Schedule::zb_h1;
        check_both_losses(job, alone);
      }
}

TEST_CASE(
    "what predicts further tokens trains the same in virtual stages, parts of sequences and divided "
    "experts") {
  const Transformer transformer = tests::with_extra_predictions(tests::tiny_variant("deepseek-v3"));
  const TrainResult alone = trained(tests::tiny_job({1, 1, 1}, transformer));
  for (Schedule schedule : {Schedule::interleaved, Schedule::zb_v, Schedule::dualpipe_v}) {
    Job job = tests::tiny_job({1, 2, 1}, transformer);
    use_schedule(job.transformer, job.strategy, schedule, 2);
    check_both_losses(job, alone);
  }
  check_both_losses(tests::context_job({1, 1, 1}, 4, transformer), alone);
  check_both_losses(tests::context_job({1, 2, 1}, 2, transformer), alone);
  Job divided = tests::tiny_job({1, 2, 2}, transformer);
  for (Stage& stage : divided.strategy.templates[0].stages) stage.expert_parallel = 2;
  check_both_losses(divided, alone);
}

TEST_CASE("the less further predictions weigh, the nearer the model is to one without them") {
  const Transformer plain = tests::tiny_variant("mistral");
  const std::vector<double> without = trained(tests::tiny_job({1, 1, 1}, plain)).losses;
  double before = 0;
  for (double weight : {1e-6, 1e-2, 1.0}) {
    Transformer transformer = tests::with_extra_predictions(plain);
    transformer.extra_prediction_weight = weight;
    const double apart =
        std::abs(trained(tests::tiny_job({1, 1, 1}, transformer)).losses.back() - without.back());
    CHECK(apart > before);
    if (weight == 1e-6) CHECK(apart < 1e-4);
    before = apart;
  }
}

TEST_CASE("what predicts further tokens does the same in the real and the imagined world") {
  const Transformer transformer = tests::with_extra_predictions(tests::tiny_variant("deepseek-v3"));
  for (tests::Degrees degrees : {tests::Degrees{2, 2, 1}, {1, 2, 2}, {2, 1, 2}}) {
    Job job = tests::tiny_job(degrees, transformer);
    job.strategy.sequence_parallel = degrees.tp > 1;
    job.strategy.zero = degrees.dp > 1 ? 1 : 0;
    if (degrees.pp > 1) job.strategy.schedule = Schedule::zb_h1;
    tests::check_same_structure(job, compile(job));
  }
}
