// Several documents in one sequence train the same function as documents in sequences of their own, however the work is
// divided.
#include <catch2/catch.hpp>

#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/context_jobs.hpp"
#include "tests/support/laws.hpp"

using namespace motley;
using tests::check_same;
using tests::train;

TEST_CASE("documents packed into sequences train the same function as each in a sequence of its own") {
  std::vector<Transformer> all = {tests::tiny_transformer(Family::gpt2),
                                  tests::tiny_transformer(Family::llama), tests::tiny_variant("mistral"),
                                  tests::tiny_variant("latent")};
  for (const Transformer& transformer : all) {
    Job apart = tests::tiny_job({1, 1, 1}, transformer);
    apart.train.sequence = 8;
    apart.train.global_batch = 32;
    apart.strategy = expand(apart.transformer, apart.train, 1, 1, 1);
    const std::vector<double> expected = train(apart, 10);
    for (const std::int64_t cp : {1, 2, 4}) {
      Job packed = tests::context_job({cp == 1 ? 2 : 1, 1, 1}, cp, transformer);
      packed.train.documents = {8, 8};
      check_same(packed, expected);
    }
  }
}

TEST_CASE("documents of unlike lengths train the same function however they are cut, and not that of one") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  const std::vector<double> one = train(job, 10);
  job.train.documents = {3, 9, 4};
  const std::vector<double> alone = train(job, 10);
  CHECK(std::abs(alone.back() - one.back()) > 1e-4);
  for (const Job& whole :
       {tests::context_job({1, 1, 1}, 4, job.transformer), tests::context_job({2, 2, 1}, 2, job.transformer),
        tests::tiny_job({1, 2, 2}, job.transformer)}) {
    Job other = whole;
    other.train.documents = job.train.documents;
    check_same(other, alone);
  }
}

TEST_CASE("documents do the same in the real and the imagined world") {
  Job job = tests::context_job({1, 1, 1}, 2, tests::tiny_transformer(Family::llama));
  job.train.documents = {3, 9, 4};
  tests::check_same_structure(job, compile(job));
}
