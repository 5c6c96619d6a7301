// Sequences cut over ranks train the same function as one rank, whatever else divides the work; both worlds do the
// same; and FLOPs, bytes gathered and bytes kept are those of the cut.
#include <catch2/catch.hpp>

#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/context_jobs.hpp"
#include "tests/support/laws.hpp"

using namespace motley;
using tests::check_same;
using tests::train;

TEST_CASE("sequences cut over ranks train the same function as one rank", "[slow]") {
  const Family family = GENERATE(Family::gpt2, Family::llama);
  const std::vector<double> alone = tests::falling_losses(tests::tiny_job({1, 1, 1}, family), 0.5);
  for (const Job& job : tests::every_context_job(family)) check_same(job, alone);
}

TEST_CASE("every family trains the same function with its sequences cut over ranks", "[slow]") {
  const std::string name = GENERATE(from_range(tests::variants()));
  const Transformer transformer = tests::tiny_variant(name);
  const std::vector<double> alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  check_same(tests::context_job({1, 1, 1}, 4, transformer), alone);
  check_same(tests::context_job({2, 1, 1}, 2, transformer), alone);
}

TEST_CASE("experts divided over ranks that have parts of the same sequences train the same function") {
  const Transformer transformer = tests::tiny_variant("mixtral");
  const std::vector<double> alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  for (const std::int64_t parts : {2, 4}) {
    Job job = tests::context_job({1, 1, 2}, 2, transformer);
    job.strategy.templates[0].stages[0].expert_parallel = parts;
    check_same(job, alone);
  }
}

TEST_CASE("pipelines that cut their sequences in unlike ways train the same function") {
  const std::vector<double> alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, Family::llama));
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  job.strategy = parse_strategy(
      "templates: [{micro_batches: 4, context_parallel: 2, stages: [{layers: 0-1}, {layers: 2-3}]},"
      " {micro_batches: 4, stages: [{layers: 0-3, tensor_parallel: 2}]}]");
  job.cluster = tests::tiny_cluster(static_cast<int>(job.strategy.rank_count()));
  check_same(job, alone);
}

TEST_CASE("ranks that leave out what others' queries add to their keys train another function") {
  Job job = tests::context_job({1, 1, 1}, 2, tests::tiny_transformer(Family::llama));
  Program program = compile(job);
  const auto right = train(job, program, 5);
  for (Stream& stream : program.rank_programs.front().streams)
    for (Instruction& instruction : stream.instructions)
      if (auto* collective = instruction.as<Collective>();
          collective != nullptr && collective->kind == CollectiveKind::reduce_scatter)
        collective->kind = CollectiveKind::all_gather;
  const auto wrong = train(job, program, 5);
  REQUIRE(std::abs(wrong.back() - right.back()) > 1e-4);
}

TEST_CASE("sequences cut over ranks do the same in the real and the imagined world", "[slow]") {
  const Family family = GENERATE(Family::gpt2, Family::llama);
  for (Job job : tests::every_context_job(family)) {
    if (job.strategy.zero >= 2) continue;  // timing decides what is gathered ahead: see test_two_worlds.cpp
    job.strategy.overlap_p2p = job.strategy.schedule == Schedule::zb_h1;  // zb_h1 needs it
    const Program program = compile(job);
    const auto memory = check(program, job.cluster);
    const TrainResult real = tests::check_same_structure(job, program).real;
    if (job.strategy.overlap_p2p) continue;  // timing decides how many messages wait in buffers
    for (Rank rank : program.ranks.ids())
      REQUIRE(static_cast<double>(memory[at(program.ranks[rank].stage)].peak) ==
              Approx(real.peak_bytes[rank]).epsilon(0.02));
  }
}
