// Real ranks whose processes were started before, as a launcher does: they meet and serve, the dead are named, and all
// end with the first process.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "hw/world/launched_ranks.hpp"
#include "hw/world/real_ranks.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/asked_ranks.hpp"
#include "tests/support/other_processes.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

struct Launch {
  Job job = tiny_job({1, 4, 1});
  Program program = compile(job);
  std::vector<Rank> real = {3_rank, 1_rank, 2_rank};  // in any order

  double silence_s = 300;

  RealRanksOptions options_at(const Place& place, double deadline_s = 100) const {
    return {
        .executor = {.communicates = true}, .deadline_s = deadline_s, .silence_s = silence_s, .place = place};
  }
  void serve(const Place& place) const { serve_real_rank(job, program, real, options_at(place)); }
};

double execute_first(RealRanks& ranks, const Program& program, Rank rank) {
  const Step step = first_step_with(program, rank, Op::compute);
  return ranks.execute(step, instruction_at(program, step));
}

}  // namespace

TEST_CASE("processes of a launch serve the real ranks in ascending order, and end well", "[real ranks]") {
  const Launch launch;
  OtherProcesses others(3, [&](const Place& place) { launch.serve(place); });
  {
    RealRanks ranks(launch.job, launch.program, launch.real, launch.options_at(others.first()));
    for (const Rank rank : {1_rank, 2_rank, 3_rank}) CHECK(execute_first(ranks, launch.program, rank) > 0);
    CHECK(ranks.process(1_rank) > 0);  // this process has forked it
    CHECK(ranks.process(2_rank) == 0);
    CHECK(ranks.process(3_rank) == 0);
  }
  CHECK(others.exit_code_of(1) == 0);
  CHECK(others.exit_code_of(2) == 0);
  CHECK((waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD));
}

TEST_CASE("a launched real rank that dies is named, whichever rank is asked", "[real ranks]") {
  const Launch launch;
  for (const Rank asked : {1_rank, 2_rank, 3_rank}) {
    OtherProcesses others(3, [&](const Place& place) { launch.serve(place); });
    RealRanks ranks(launch.job, launch.program, launch.real, launch.options_at(others.first()));
    execute_first(ranks, launch.program, 2_rank);
    const pid_t killed = others.ids[0];
    if (asked == 1_rank) kill(ranks.process(1_rank), SIGSTOP);  // it never answers
    if (asked == 3_rank) kill(others.ids[1], SIGSTOP);
    kill(killed, SIGKILL);
    CHECK_THAT(failure_of([&] { execute_first(ranks, launch.program, asked); }),
               Catch::StartsWith(fmt::format("real rank 2 (process {} at 127.0.0.1) is gone (", killed)) &&
                   Catch::Contains("), at stage "));
  }
}

TEST_CASE("a launched real rank that does not answer is named after its deadline", "[real ranks]") {
  const Launch launch;
  OtherProcesses others(3, [&](const Place& place) { launch.serve(place); });
  RealRanks ranks(launch.job, launch.program, launch.real, launch.options_at(others.first(), 0.3));
  kill(others.ids[1], SIGSTOP);
  CHECK_THAT(
      failure_of([&] { execute_first(ranks, launch.program, 3_rank); }),
      Catch::StartsWith("real rank 3 (process ") && Catch::Contains("has not answered for 0.3 s, at stage"));
}

TEST_CASE("a launched real rank that is stopped is named, whichever rank is asked, and ends the others",
          "[real ranks]") {
  Launch launch;
  launch.silence_s = 3;
  for (const Rank asked : {1_rank, 3_rank}) {
    OtherProcesses others(3, [&](const Place& place) {
      const std::string failure = failure_of([&] { launch.serve(place); });
      if (!failure.starts_with("real rank 3: real rank 2 (process ")) return;
      if (failure.find(" has given no sign of life for 3 s") != std::string::npos) throw RunFailure(failure);
    });
    {
      RealRanks ranks(launch.job, launch.program, launch.real, launch.options_at(others.first()));
      execute_first(ranks, launch.program, 3_rank);
      kill(others.ids[0], SIGSTOP);
      const auto ask_on = [&] {
        for (;;) ranks.loss_sum(asked);
      };
      CHECK_THAT(failure_of(ask_on), Catch::StartsWith(fmt::format(
                                         "real rank 2 (process {} at 127.0.0.1) has given no sign of "
                                         "life for 3 s: it is stopped, or its host is gone, while rank {} ",
                                         others.ids[0], asked)));
    }
    CHECK(others.exit_code_of(2) == 1);
  }
}

TEST_CASE("launched real ranks fail when the process that asks them is stopped", "[real ranks]") {
  Launch launch;
  launch.silence_s = 3;
  OtherProcesses others(3, [&](const Place& place) {
    const std::string failure = failure_of([&] { launch.serve(place); });
    if (failure.find(": the process of real rank 1, which simulates, has given no sign of life for 3 s") !=
        std::string::npos)
      throw RunFailure(failure);
  });
  const Place place = others.first();
  const pid_t first = fork();
  if (first == 0) {
    RealRanks ranks(launch.job, launch.program, launch.real, launch.options_at(place));
    execute_first(ranks, launch.program, 3_rank);
    raise(SIGSTOP);
    _exit(0);
  }
  close(place.listener);
  CHECK(others.exit_code_of(1) == 1);
  CHECK(others.exit_code_of(2) == 1);
  kill(first, SIGKILL);
  REQUIRE(waitpid(first, nullptr, 0) == first);
}

TEST_CASE("launched real ranks wait for a process that simulates for longer than the limit of silence",
          "[real ranks]") {
  Launch launch;
  launch.silence_s = 3;
  OtherProcesses others(3, [&](const Place& place) { launch.serve(place); });
  {
    RealRanks ranks(launch.job, launch.program, launch.real, launch.options_at(others.first()));
    CHECK(ranks.loss_sum(3_rank) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(6500));
    CHECK(execute_first(ranks, launch.program, 3_rank) > 0);
  }
  CHECK(others.exit_code_of(1) == 0);
  CHECK(others.exit_code_of(2) == 0);
}

TEST_CASE("launched real ranks fail when the process that asks them dies", "[real ranks]") {
  const Launch launch;
  OtherProcesses others(3, [&](const Place& place) {
    if (place.rank != 2_rank) return launch.serve(place);
    const std::string failure = failure_of([&] { launch.serve(place); });
    if (!failure.starts_with("real rank 3: the process of real rank 1, which simulates, is gone ("))
      throw RunFailure(failure);
  });
  const Place place = others.first();
  const pid_t first = fork();
  if (first == 0) {
    RealRanks ranks(launch.job, launch.program, launch.real, launch.options_at(place));
    execute_first(ranks, launch.program, 3_rank);
    _exit(0);  // without an end
  }
  close(place.listener);
  REQUIRE(waitpid(first, nullptr, 0) == first);
  CHECK(others.exit_code_of(1) == 1);
  CHECK(others.exit_code_of(2) == 0);
}

TEST_CASE("launched real ranks fail when the process that asks them dies before they have met",
          "[real ranks][slow]") {
  const Launch launch;
  constexpr double kNever_s = 1e6;  // nobody waits for a deadline
  for (int i = 0; i < (kSanitized ? 1 : 3); ++i) {
    OtherProcesses others(3, [&](const Place& place) {
      serve_real_rank(launch.job, launch.program, launch.real, launch.options_at(place, kNever_s));
    });
    const Place place = others.first();
    const pid_t first = fork();
    if (first == 0) {
      RealRanks ranks(launch.job, launch.program, launch.real, launch.options_at(place, kNever_s));
      kill(ranks.process(1_rank), SIGKILL);  // most likely it has connected to no other
      _exit(0);
    }
    close(place.listener);
    REQUIRE(waitpid(first, nullptr, 0) == first);
    CHECK(others.exit_code_of(1) == 1);
    CHECK(others.exit_code_of(2) == 1);
  }
}

TEST_CASE("what a launched real rank refuses is refused by the first process alone", "[real ranks]") {
  Launch launch;
  launch.job.train.precision = Format::bf16;
  launch.program = compile(launch.job);
  OtherProcesses others(3, [&](const Place& place) { launch.serve(place); });
  {
    RealRanks ranks(launch.job, launch.program, launch.real, launch.options_at(others.first()));
    CHECK_THROWS_AS(execute_first(ranks, launch.program, 2_rank), Refusal);
  }
  CHECK(others.exit_code_of(1) == 0);
  CHECK(others.exit_code_of(2) == 0);
}

TEST_CASE("a launch of more or fewer processes than real ranks is refused: rank-count", "[real ranks]") {
  Place place;
  place.rank_count = 2;
  CHECK(rank_served(place, {5_rank, 3_rank}) == 3_rank);
  place.rank = 1_rank;
  CHECK(rank_served(place, {5_rank, 3_rank}) == 5_rank);
  place.rank = 0_rank;
  for (const std::int32_t count : {1, 3}) try {
      place.rank_count = count;
      rank_served(place, {5_rank, 3_rank});
      FAIL("it has a rank");
    } catch (const Refusal& refusal) {
      CHECK(refusal.kind() == "rank-count");
      CHECK(refusal.exit_code() == Exit::usage);
      CHECK_THAT(refusal.message(), Catch::Contains("started, and 2 ranks are real"));
    }
  CHECK(tests::refusal_on_page([&] {
          rank_served(place, {5_rank, 3_rank});
        }) == tests::expected_refusal("rank-count: more processes than real ranks"));
}

TEST_CASE("processes of a launch that would compute unlike are refused", "[real ranks]") {
  const Launch launch;
  OtherProcesses others(2, [&](const Place& place) {
    RealRanksOptions options = launch.options_at(place);
    options.executor.repeats = {0, 7};
    try {
      serve_real_rank(launch.job, launch.program, {0_rank, 1_rank}, options);
    } catch (const Refusal& refusal) {
      if (refusal.kind() == "run-differs") throw;
    }
  });
  try {
    RealRanks ranks(launch.job, launch.program, {0_rank, 1_rank}, launch.options_at(others.first()));
    FAIL("they agree");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "run-differs");
    CHECK(refusal.message() == "rank 1 has repeats 7, rank 0 has 1");
  }
  CHECK(others.exit_code_of(1) == 1);
}
