// Sequence parallelism and recompute change which rank has which rows and what is kept, but not the function: losses
// are those of one rank, and both worlds have the same events.
#include <catch2/catch.hpp>

#include "models/compile/compile.hpp"
#include "tests/support/laws.hpp"
#include "tests/support/row_jobs.hpp"

using namespace motley;
using tests::check_same;
using tests::train;

namespace {

void check_same_function(const Transformer& transformer, const std::vector<Job>& jobs) {
  const auto alone = tests::falling_losses(tests::tiny_job({1, 1, 1}, transformer), 0.5);
  for (const Job& job : jobs) check_same(job, alone);
}

void check_two_worlds(const std::vector<Job>& jobs) {
  for (const Job& job : jobs) tests::check_same_structure(job, compile(job));
}

}  // namespace

TEST_CASE("rows divided over tensor-parallel ranks train the same function as one rank", "[slow]") {
  const Family family = GENERATE(Family::gpt2, Family::llama);
  const Transformer transformer = tests::tiny_transformer(family);
  check_same_function(transformer, tests::every_row_job(transformer));
}

TEST_CASE("rows divided over tensor-parallel ranks train the same function in every family", "[slow]") {
  const Transformer transformer = tests::tiny_variant(GENERATE(from_range(tests::variants())));
  std::vector<Job> jobs;
  for (const Job& job : tests::every_row_job(transformer)) {
    const Strategy& strategy = job.strategy;
    const bool plain = strategy.tp() == 2 && strategy.pp() == 1 && strategy.dp() == 1;
    const bool divided = strategy.zero == 2 && strategy.overlap_gradients;
    if (plain || divided || strategy.schedule == Schedule::zb_h1) jobs.push_back(job);
  }
  REQUIRE(jobs.size() == 4);
  check_same_function(transformer, jobs);
}

TEST_CASE("rows divided over ranks that share experts train the same function") {
  const Transformer transformer = tests::tiny_variant("mixtral");
  std::vector<Job> jobs;
  for (Job job : tests::every_expert_job(transformer)) {
    if (job.strategy.tp() == 1) continue;
    job.strategy.sequence_parallel = true;
    jobs.push_back(job);
  }
  REQUIRE(jobs.size() >= 6);
  check_same_function(transformer, jobs);
}

TEST_CASE("what a backward computes again changes nothing of the function", "[slow]") {
  const std::string name = GENERATE("gpt2", "llama", "qwen3", "mixtral", "latent");
  const Transformer transformer =
      name == "gpt2" ? tests::tiny_transformer(Family::gpt2) : tests::tiny_variant(name);
  check_same_function(transformer, tests::every_recomputing_job(transformer));
}

TEST_CASE("divided rows and partial recompute do the same in the real and the imagined world", "[slow]") {
  const Transformer transformer = tests::tiny_transformer(Family::llama);
  check_two_worlds(tests::every_row_job(transformer));
  check_two_worlds(tests::every_recomputing_job(transformer));
}

// Without a sum over ranks, the gradients of norms and biases come from one rank's rows only.
TEST_CASE("ranks that keep the gradients of their rows to themselves train another function") {
  Job job = tests::tiny_job({2, 1, 1});
  job.strategy.sequence_parallel = true;
  Program program = compile(job);
  const auto right = train(job);
  int dropped = 0;
  for (RankEntry& entry : program.ranks)
    for (std::optional<GroupId>& group : entry.groups)
      if (group && program.groups[*group].kind == GroupKind::tensor_gradient) {
        group = std::nullopt;
        ++dropped;
      }
  REQUIRE(dropped == 2);
  const auto wrong = train(job, program);
  REQUIRE(std::abs(wrong.back() - right.back()) > 1e-4);
}
