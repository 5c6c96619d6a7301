// Unlike pipelines of one strategy train the same function as one rank: gradients are summed over all ranks that hold a
// parameter, by the finest cut if degrees differ, and every token has the same weight. Both worlds do the same.
#include <catch2/catch.hpp>

#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/laws.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using tests::check_same;
using tests::train;

namespace {

// Each has 16 sequences in a step, and 4 layers.
const std::vector<std::string> kUnlike = {
    // two micro-batch sizes
    "templates: [{micro_batches: 4, micro_batch: 2, stages: [{layers: 0-3}]},"
    " {micro_batches: 8, micro_batch: 1, stages: [{layers: 0-3}]}]",
    // unequal shares of the batch
    "templates: [{micro_batches: 5, stages: [{layers: 0-3}]}, {micro_batches: 3, stages: [{layers: 0-3}]}]",
    // one stage beside two
    "templates: [{micro_batches: 4, stages: [{layers: 0-3}]},"
    " {micro_batches: 4, stages: [{layers: 0-0}, {layers: 1-3}]}]",
    // two stages beside three, cut at other layers, one of them recomputed
    "templates: [{micro_batches: 2, stages: [{layers: 0-1}, {layers: 2-3, recompute: full}]},"
    " {micro_batches: 6, stages: [{layers: 0-0}, {layers: 1-2}, {layers: 3-3}]}]",
    // tensor-parallel degrees 2 and 1
    "templates: [{micro_batches: 6, stages: [{layers: 0-3, tp: 2}]}, {micro_batches: 2, stages: [{layers: "
    "0-3}]}]",
    // tensor-parallel degrees 4, 2 and 1, with replicas
    "templates: [{micro_batches: 2, stages: [{layers: 0-3, tp: 4}]}, {micro_batches: 2, stages: [{layers: "
    "0-3, tp: 2}]},"
    " {replicas: 2, micro_batches: 2, stages: [{layers: 0-3}]}]",
    // pipelines that differ in everything
    "templates: [{micro_batches: 4, stages: [{layers: 0-2, tp: 2}, {layers: 3-3, tp: 2}]},"
    " {micro_batches: 8, micro_batch: 1, stages: [{layers: 0-0, tp: 1}, {layers: 1-3, tp: 1}]}]",
};

// Strategies that zero 2 and 3 can divide: the numbers of replicas have a common divisor, so that every part of
// gradients and parameters belongs to one template.
const std::vector<std::string> kDivisible = {
    // other micro-batches, other cuts of the layers
    "templates: [{replicas: 2, micro_batches: 2, stages: [{layers: 0-3}]},"
    " {replicas: 2, micro_batches: 4, micro_batch: 1, stages: [{layers: 0-0}, {layers: 1-3}]}]",
    // twice as many replicas of one
    "templates: [{replicas: 4, micro_batches: 1, stages: [{layers: 0-3}]},"
    " {replicas: 2, micro_batches: 2, stages: [{layers: 0-3}]}]",
    // cut in two, and in one or four
    "templates: [{replicas: 2, micro_batches: 2, stages: [{layers: 0-3, tp: 2}]},"
    " {replicas: 2, micro_batches: 2, stages: [{layers: 0-1}, {layers: 2-3, tp: 4}]}]",
    // one of them with stages that differ in their replicas
    "templates: [{replicas: 2, micro_batches: 1, stages: [{layers: 0-3}]}, {replicas: 1, micro_batches: 3,"
    " micro_batch: 4, stages: [{layers: 0-2, replicas: 2}, {layers: 3-3, replicas: 4}]}]"};

Job unlike_job(const std::string& text, const Transformer& transformer) {
  Job job = tests::tiny_job({1, 1, 1}, transformer);
  job.strategy = parse_strategy(text);
  validate(job.transformer, job.train, job.strategy);
  job.cluster = tests::tiny_cluster(static_cast<int>(job.strategy.rank_count()));
  return job;
}

// Jobs whose templates divide what they hold.
std::vector<Job> divided_jobs(const Transformer& transformer) {
  std::vector<Job> jobs;
  const std::string gradients = "overlap: {gradients: true, bucket_bytes: 20 kB}\n";
  for (const std::string& text : kUnlike)
    for (const std::string& overlap : {std::string(), gradients})
      jobs.push_back(unlike_job("zero: 1\n" + overlap + text + "\n", transformer));
  for (const std::string& text : kDivisible)
    for (const std::string options : {"zero: 1\nshard_over: 2\n", "zero: 2\n", "zero: 3\nschedule: zb-h1\n"})
      jobs.push_back(unlike_job(options + gradients + text + "\n", transformer));
  return jobs;
}

std::vector<Job> unlike_jobs(Family family) {
  std::vector<Job> jobs;
  for (const std::string& text : kUnlike)
    for (const std::string overlap :
         {"{p2p: true, gradients: false}", "{gradients: true, bucket_bytes: 20 kB}"})
      for (const std::string schedule : {"1f1b", "gpipe"}) {
        Job job = tests::tiny_job({1, 1, 1}, family);
        job.strategy = parse_strategy("schedule: " + schedule + "\noverlap: " + overlap + "\n" + text + "\n");
        validate(job.transformer, job.train, job.strategy);
        job.cluster = tests::tiny_cluster(static_cast<int>(job.strategy.rank_count()));
        jobs.push_back(job);
      }
  return jobs;
}

void check_unlike_pipelines(Family family) {
  const Job one = tests::tiny_job({1, 1, 1}, family);
  const auto alone = tests::falling_losses(one, 0.5, 10);
  for (const Job& job : unlike_jobs(family)) {
    INFO(print(job.strategy));
    const Program program = compile(job);
    check(program, job.cluster);
    REQUIRE(parse_program(print(program)) == program);
    check_same(job, alone);
  }
}

}  // namespace

TEST_CASE("unlike pipelines train the same GPT-2 as one rank") { check_unlike_pipelines(Family::gpt2); }

TEST_CASE("unlike pipelines train the same Llama as one rank") { check_unlike_pipelines(Family::llama); }

TEST_CASE("unlike pipelines whose experts are cut or divided alike train the same function") {
  const std::vector<std::string> unlike = {
      // experts cut like the rest: gradients are summed by the finest cut
      "templates: [{micro_batches: 6, stages: [{layers: 0-3, tp: 2}]}, {micro_batches: 2, stages: [{layers: "
      "0-3}]}]",
      // experts cut in neither template, the rest cut in one
      "templates: [{micro_batches: 6, stages: [{layers: 0-3, tp: 2, etp: 1}]},"
      " {micro_batches: 2, stages: [{layers: 0-3}]}]",
      // experts divided over a tensor-parallel group in one template, over replicas in the other
      "templates: [{micro_batches: 4, stages: [{layers: 0-3, tp: 2, ep: 2, etp: 1}]},"
      " {replicas: 2, micro_batches: 2, stages: [{layers: 0-3, ep: 2}]}]"};
  const std::string name = GENERATE("mixtral", "qwen2-moe", "deepseek-v3");
  const Job one = tests::tiny_job({1, 1, 1}, tests::tiny_variant(name));
  const auto alone = tests::compared_losses(one);
  for (const std::string& text : unlike) {
    INFO(name << "\n" << text);
    Job job = one;
    job.strategy = parse_strategy("overlap: {gradients: true, bucket_bytes: 20 kB}\n" + text + "\n");
    validate(job.transformer, job.train, job.strategy);
    job.cluster = tests::tiny_cluster(static_cast<int>(job.strategy.rank_count()));
    check_same(job, alone);
  }
}

TEST_CASE("unlike pipelines train the same function whatever they divide among them", "[slow]") {
  const Family family = GENERATE(Family::gpt2, Family::llama);
  const Job one = tests::tiny_job({1, 1, 1}, family);
  const auto alone = tests::compared_losses(one);
  for (const Job& job : divided_jobs(one.transformer)) {
    INFO(print(job.strategy));
    const Program program = compile(job);
    check(program, job.cluster);
    REQUIRE(parse_program(print(program)) == program);
    check_same(job, alone);
  }
}

TEST_CASE("unlike pipelines that divide experts and what replicas hold of them train the same function") {
  const std::vector<std::string> unlike = {
      "templates: [{micro_batches: 6, stages: [{layers: 0-3, tp: 2}]}, {micro_batches: 2, stages: [{layers: "
      "0-3}]}]",
      "templates: [{micro_batches: 4, stages: [{layers: 0-3, tp: 2, ep: 2, etp: 1}]},"
      " {replicas: 2, micro_batches: 2, stages: [{layers: 0-3, ep: 2}]}]",
      "templates: [{replicas: 2, micro_batches: 2, stages: [{layers: 0-3, ep: 2}]},"
      " {replicas: 4, micro_batches: 1, stages: [{layers: 0-3, ep: 2}]}]"};
  const Job one = tests::tiny_job({1, 1, 1}, tests::tiny_variant("mixtral"));
  const auto alone = tests::compared_losses(one);
  for (std::size_t i = 0; i < unlike.size(); ++i)
    for (int zero = 1; zero <= (i == 2 ? 3 : 1); ++zero) {
      const Job job = unlike_job("zero: " + std::to_string(zero) + "\n" + unlike[i] + "\n", one.transformer);
      check_same(job, alone);
    }
}

TEST_CASE("unlike pipelines do the same in the real and the imagined world", "[slow]") {
  std::vector<Job> jobs = unlike_jobs(Family::gpt2);
  for (const Job& job : divided_jobs(tests::tiny_transformer(Family::gpt2))) jobs.push_back(job);
  for (const Job& job : jobs) {
    tests::check_same_structure(job, compile(job));
  }
}

TEST_CASE("a pipeline that drops its share of the gradients trains another function") {
  Job job = unlike_jobs(Family::gpt2)[0];
  Program program = compile(job);
  const auto right = train(job, program, 10);
  for (Stream& stream : program.rank_programs.front().streams)
    for (Instruction& instruction : stream.instructions)
      if (auto* collective = instruction.as<Collective>()) collective->scale = 0.0;
  const auto wrong = train(job, program, 10);
  REQUIRE(std::abs(wrong.back() - right.back()) > 1e-4);
}
