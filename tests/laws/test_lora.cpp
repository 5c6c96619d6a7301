// Low-rank adapters: weights stay frozen, and the trained function is the same however the job is cut.
#include <catch2/catch.hpp>

#include "models/compile/compile.hpp"
#include "tests/support/laws.hpp"
#include "tests/support/row_jobs.hpp"

using namespace motley;
using tests::check_same;
using tests::train;

namespace {

Transformer adapted(Transformer transformer) {
  transformer.lora.rank = 3;
  transformer.lora.alpha = 6;
  transformer.lora.on = {"qkv", "proj", transformer.gated() ? "gate_up" : "fc1", "fc2"};
  return transformer;
}

Job adapted_job(tests::Degrees degrees, const Transformer& transformer) {
  Job job = tests::tiny_job(degrees, adapted(transformer));
  // Large enough to learn. A larger rate would let rounding errors grow, because AdamW makes a whole step along the
  // sign even of a gradient that is almost zero.
  job.train.learning_rate = 3e-3;
  job.train.epsilon = 1e-5;
  return job;
}

}  // namespace

TEST_CASE("adapters train the same function as on one rank however a job is cut", "[slow]") {
  const std::string name = GENERATE("gpt2", "llama", "mixtral");
  const Transformer transformer =
      name == "gpt2" ? tests::tiny_transformer(Family::gpt2) : tests::tiny_variant(name);
  const auto alone = tests::falling_losses(adapted_job({1, 1, 1}, transformer), 0.05);
  for (tests::Degrees degrees : {tests::Degrees{2, 1, 1}, {2, 2, 1}, {1, 2, 2}, {2, 1, 2}})
    for (bool rows : {false, true})
      for (int zero : {0, 1, 2, 3}) {
        if ((rows && degrees.tp == 1) || (zero > 0 && degrees.dp == 1)) continue;
        Job job = adapted_job(degrees, transformer);
        job.strategy.sequence_parallel = rows;
        job.strategy.zero = zero;
        job.strategy.overlap_gradients = rows;
        job.strategy.recompute = rows ? Recompute::full : Recompute::selective;
        if (degrees.pp > 1 && !rows) job.strategy.schedule = Schedule::zb_h1;
        check_same(job, alone);
      }
}

TEST_CASE("adapters begin where the frozen model stands, and nothing else moves it") {
  const Transformer transformer = tests::tiny_transformer(Family::llama);
  const double frozen = train(tests::tiny_job({1, 1, 1}, transformer), 1)[0];
  CHECK(train(adapted_job({1, 1, 1}, transformer), 1)[0] == frozen);  // matrix B is zero at first
  Job still = adapted_job({1, 1, 1}, transformer);
  still.transformer.lora.on.clear();  // all weights frozen, and no adapters
  const auto losses = train(still, 5);
  Job later = still;
  later.train.learning_rate = 1;
  CHECK(train(later, 5) == losses);
}

TEST_CASE("alpha weighs what an adapter adds") {
  Job job = adapted_job({1, 1, 1}, tests::tiny_transformer(Family::llama));
  const auto one = train(job);
  job.transformer.lora.alpha = 3;
  CHECK(std::abs(train(job).back() - one.back()) > 1e-3);
}

TEST_CASE("adapters do the same in the real and the imagined world") {
  for (tests::Degrees degrees : {tests::Degrees{2, 2, 1}, {2, 1, 2}}) {
    Job job = adapted_job(degrees, tests::tiny_transformer(Family::gpt2));
    job.strategy.zero = degrees.dp > 1 ? 1 : 0;
    tests::check_same_structure(job, compile(job));
  }
}
