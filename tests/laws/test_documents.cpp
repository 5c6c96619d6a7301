// Several documents in one sequence: the same function as documents in sequences of their own, however it is divided.
#include <catch2/catch.hpp>

#include "hw/train.hpp"
#include "models/check.hpp"
#include "models/compare.hpp"
#include "sim/world.hpp"
#include "tests/hw/tiny_text.hpp"
#include "tests/models/context_jobs.hpp"

using namespace motley;

namespace {

std::vector<double> train(const Job& job) {
  TrainOptions options;
  options.steps = 10;
  return train_in_process(job, compile(job), tests::tiny_text(), options).losses;
}

void check_same(const Job& job, const std::vector<double>& expected) {
  INFO(job.transformer.name << "\n" << print(job.strategy));
  const std::vector<double> losses = train(job);
  for (std::size_t step = 0; step < expected.size(); ++step)
    REQUIRE(losses[step] == Approx(expected[step]).margin(1e-5).epsilon(0));
}

}  // namespace

TEST_CASE("documents packed into sequences train the same function as each in a sequence of its own") {
  std::vector<Transformer> all = {tests::tiny_transformer(Family::gpt2),
                                  tests::tiny_transformer(Family::llama), tests::tiny_variant("mistral"),
                                  tests::tiny_variant("latent")};
  for (const Transformer& transformer : all) {
    Job apart = tests::tiny_job({1, 1, 1}, transformer);
    apart.train.sequence = 8;
    apart.train.global_batch = 32;
    apart.strategy = expand(apart.transformer, apart.train, 1, 1, 1);
    const std::vector<double> expected = train(apart);
    for (const std::int64_t cp : {1, 2, 4}) {
      Job packed = tests::context_job({cp == 1 ? 2 : 1, 1, 1}, cp, transformer);
      packed.train.documents = {8, 8};
      check_same(packed, expected);
    }
  }
}

TEST_CASE("documents of unlike lengths train the same function however they are cut, and not that of one") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  const std::vector<double> one = train(job);
  job.train.documents = {3, 9, 4};
  const std::vector<double> alone = train(job);
  CHECK(std::abs(alone.back() - one.back()) > 1e-4);
  for (const Job& made :
       {tests::context_job({1, 1, 1}, 4, job.transformer), tests::context_job({2, 2, 1}, 2, job.transformer),
        tests::tiny_job({1, 2, 2}, job.transformer)}) {
    Job other = made;
    other.train.documents = job.train.documents;
    check_same(other, alone);
  }
}

TEST_CASE("documents do the same in the real and the imagined world") {
  Job job = tests::context_job({1, 1, 1}, 2, tests::tiny_transformer(Family::llama));
  job.train.documents = {3, 9, 4};
  const Program program = compile(job);
  TrainOptions options;
  options.steps = 2;
  options.trace_step = 1;
  const TrainResult real = train_in_process(job, program, tests::tiny_text(), options);
  const Comparison comparison = compare(program, real.trace, simulate_in_child(job, program));
  INFO(to_text(comparison));
  REQUIRE(comparison.equal_structure());
}
