// Mixed with real ranks in processes: with all ranks real it is the real training, bit for bit, in the order of the
// simulation; any mixture runs, and its tape replays to the same bytes.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <mutex>

#include "hw/communicator/parts.hpp"
#include "models/base/temporary_folder.hpp"
#include "tests/support/context_jobs.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/laws.hpp"
#include "tests/support/mixed_run.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/row_jobs.hpp"
#include "tests/support/tiny_job.hpp"

namespace motley::tests {
namespace {

// What a step leaves: the loss, and the parameters of each rank.
struct Left {
  Trace trace;
  double loss = 0;
  std::vector<std::vector<float>> parameters;
};

Left train_one_step(const Job& job, const Program& program) {
  Left left;
  std::mutex mutex;
  std::map<Rank, RankWork*> works;
  TrainOptions options;
  options.on_start = [&](Rank rank, RankWork& work) {
    const std::lock_guard lock(mutex);
    works[rank] = &work;
  };
  // Every rank has ended the step and waits for the others.
  options.on_step = [&](std::int64_t, double loss, std::optional<double>) {
    left.loss = loss;
    for (const auto& [rank, work] : works)
      for (const TensorId id : parameters_of(program, rank)) {
        const std::span<float> values = work->values(id, kNoMicroBatch);
        left.parameters.emplace_back(values.begin(), values.end());
      }
  };
  const Text text = tiny_text();
  options.trace_step = 0;
  left.trace = train_in_process(job, program, text, options).trace;
  return left;
}

void check_replays(const Job& job, const Program& program, const Trace& mixed) {
  const TemporaryFolder folder;
  write_trace(mixed, program, folder.path() + "/tape");
  const Trace tape = read_trace(folder.path() + "/tape");
  SimOptions replay;
  replay.tape = &tape;
  replay.records_kernels = true;
  write_trace(simulate_in_child(job, program, replay), program, folder.path() + "/replayed");
  REQUIRE(folder.read("tape") == folder.read("replayed"));
}

void check_all_real(const Job& job) {
  INFO(print(job.strategy));
  const Program program = compile(job);
  const Left real = train_one_step(job, program);
  const Text text = tiny_text();
  ExecutorOptions how;
  how.repeats = {1, 2};
  how.text = &text;
  how.communicates = true;
  const Ran mixed = run_mixed(job, program, every_rank(program), {.executor = how});
  CHECK(mixed.loss == Approx(real.loss).epsilon(1e-12));
  REQUIRE(mixed.parameters.size() == real.parameters.size());
  for (std::size_t i = 0; i < real.parameters.size(); ++i)
    REQUIRE((mixed.parameters[i] == real.parameters[i]));
  const Comparison comparison = compare(program, real.trace, mixed.trace);
  REQUIRE(comparison.compared == static_cast<std::int64_t>(mixed.trace.events.size()));
  REQUIRE(comparison.equal_structure());
  check_replays(job, program, mixed.trace);
}

// One of each kind of strategy that any law draws on.
std::vector<Job> every_job_of_the_laws() {
  std::vector<Job> all;
  const auto add = [&](const std::vector<Job>& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (const Family family : {Family::gpt2, Family::llama}) {
    add(every_small_job(family));
    add(every_scheduled_job(family));
    add(every_divided_job(family));
    add(every_offloaded_job(family));
    add(every_job_of_unlike_replicas(family));
    add(every_resharded_job(family));
    add(every_context_job(family));
  }
  const Transformer experts = tiny_variant("mixtral"), rows = tiny_transformer(Family::llama);
  add(every_expert_job(experts));
  add(every_overlapped_expert_job(experts));
  add(every_divided_expert_job(experts));
  add(every_row_job(rows));
  add(every_recomputing_job(rows));
  add(every_module_job(rows));
  return all;
}

}  // namespace

TEST_CASE("mixed with all ranks real leaves what real training leaves, bit for bit", "[mixed]") {
  int jobs = 0;
  const auto check_some = [&](const std::vector<Job>& all, std::size_t every) {
    for (std::size_t i = 0; i < all.size(); i += kSanitized ? 4 * every : every) {
      Job job = all[i];
      job.fidelity.tensor_parallel = CollectiveLevel::fluid;  // what is inside a compute moves nothing
      check_all_real(job);
      ++jobs;
    }
  };
  check_some(every_small_job(Family::gpt2), 7);
  check_some(every_divided_job(Family::llama), 5);
  check_some(every_offloaded_job(Family::llama), 9);
  check_some(every_scheduled_job(Family::gpt2), 9);
  CHECK(jobs > 8);
}

TEST_CASE("any mixture of real and simulated ranks runs, and its tape replays to the same bytes",
          "[mixed][slow]") {
  Dice dice(7);
  std::vector<Job> all = every_job_of_the_laws();
  std::shuffle(all.begin(), all.end(), dice.engine());
  std::array<int, 4> jobs_of_zero = {};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Job& job = all[i];
    int& jobs = jobs_of_zero.at(static_cast<std::size_t>(job.strategy.zero));
    if (!tries_every_draw() && i % (kSanitized ? 24 : 3) != 0 && jobs > 0) continue;
    const Program program = compile(job);
    std::vector<Rank> real;
    for (const Rank rank : program.ranks.ids())
      if (dice.once_in(2)) real.push_back(rank);
    if (real.empty()) real = {0_rank};
    CAPTURE(i, real.size(), print(job.strategy));
    ExecutorOptions how;
    how.contribution = dice.one_of({Contribution::made_up, Contribution::zeros});
    how.communicates = true;
    const Ran mixed =
        run_mixed(job, program, real, {.executor = how}, {.measures_transfers = dice.once_in(2)});
    for (const auto& tensor : mixed.parameters)
      for (const float value : tensor) REQUIRE(std::isfinite(value));
    REQUIRE(compare(program, simulate_in_child(job, program), mixed.trace).equal_structure());
    check_replays(job, program, mixed.trace);
    ++jobs;
  }
  CHECK(std::count(jobs_of_zero.begin(), jobs_of_zero.end(), 0) == 0);
}

TEST_CASE("launched real ranks leave what forked ones leave, bit for bit", "[mixed][slow]") {
  for (const Degrees degrees : {Degrees{1, 2, 2}, {2, 2, 1}, {1, 4, 1}})
    for (const std::vector<Rank>& real :
         {std::vector<Rank>{0_rank, 1_rank, 2_rank, 3_rank}, {3_rank, 1_rank}}) {
      Job job = tiny_job(degrees);
      job.fidelity.tensor_parallel = CollectiveLevel::fluid;
      const Program program = compile(job);
      ExecutorOptions how;
      how.communicates = true;
      const Ran forked = run_mixed(job, program, real, {.executor = how});
      const Ran launched =
          run_mixed(job, program, real, {.executor = how}, {.launched = true, .measures_transfers = true});
      REQUIRE((forked.loss == launched.loss && forked.parameters == launched.parameters));
      REQUIRE(launched.parameters.size() > 4);
      REQUIRE(compare(program, forked.trace, launched.trace).equal_structure());
      CHECK(launched.trace.measured_transfers);
      check_replays(job, program, launched.trace);
    }
}

TEST_CASE("real replicas hold the same parameters after a step, although others are simulated", "[mixed]") {
  const std::vector<Rank> real = {0_rank, 2_rank, 3_rank};
  for (const int zero : {0, 1, 2}) {
    Job job = tiny_job({1, 1, 4});
    job.strategy.zero = zero;
    const Program program = compile(job);
    for (const Contribution contribution : {Contribution::zeros, Contribution::made_up}) {
      CAPTURE(zero, name_of(contribution));
      ExecutorOptions how;
      how.contribution = contribution;
      how.communicates = true;
      const Ran together = run_mixed(job, program, real, {.executor = how});
      const std::size_t count = together.parameters.size() / real.size();
      REQUIRE(count == parameters_of(program, 0_rank).size());
      const Ran alone = run_mixed(job, program, {0_rank}, {.executor = how});
      bool differs = false;
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t replica = 1; replica < real.size(); ++replica)
          REQUIRE(together.parameters[replica * count + i] == together.parameters[i]);
        differs = differs || alone.parameters[i] != together.parameters[i];
      }
      CHECK(differs);  // what the other real ranks found counts
    }
  }
}

TEST_CASE("simulated ranks add nothing to a sum, and bring what they contribute to a gather", "[mixed]") {
  for (const int zero : {1, 2}) {
    Job job = tiny_job({1, 1, 2});
    job.strategy.zero = zero;
    const Program program = compile(job);
    const RankProgram& rank_program = program.program_of(0_rank);
    std::vector<std::vector<float>> own, others;
    for (const Contribution contribution : {Contribution::zeros, Contribution::made_up}) {
      ExecutorOptions how;
      how.contribution = contribution;
      how.communicates = true;
      const Ran mixed = run_mixed(job, program, {0_rank}, {.executor = how});
      std::map<TensorId, std::vector<float>> parameters;
      auto next = mixed.parameters.begin();
      for (const TensorId id : parameters_of(program, 0_rank)) parameters[id] = *next++;
      own.emplace_back();
      others.emplace_back();
      for (const Shard& shard : rank_program.shards) {
        std::vector<float> whole;
        for (const TensorId id : shard.parameters)
          whole.insert(whole.end(), parameters.at(id).begin(), parameters.at(id).end());
        const std::span<float> mine = part(whole, 0, 2), theirs = part(whole, 1, 2);
        own.back().insert(own.back().end(), mine.begin(), mine.end());
        others.back().insert(others.back().end(), theirs.begin(), theirs.end());
      }
    }
    REQUIRE(own[0].size() > 1000);
    CHECK((own[0] == own[1]));
    CHECK((others[0] == std::vector<float>(others[0].size())));
    CHECK((others[0] != others[1]));
  }
}

}  // namespace motley::tests
