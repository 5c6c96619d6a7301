// Real ranks in processes of their own: they answer, the dead are named, and none outlives the process that asks.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "hw/world/real_ranks.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/asked_ranks.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

bool has_living_children() { return waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

}  // namespace

TEST_CASE("real ranks compute in processes of their own, which end with them", "[real ranks]") {
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  {
    RealRanks ranks(job, program, {0_rank, 1_rank}, {});
    CHECK_FALSE(has_living_children());  // none was needed yet
    for (const Rank rank : program.ranks.ids()) {
      const Step step = first_step_with(program, rank, Op::compute);
      const Instruction& instruction = instruction_at(program, step);
      CHECK(ranks.execute(step, instruction) > 0);
      const auto* compute = instruction.as<Compute>();
      CHECK(ranks.kernels().size() == static_cast<std::size_t>(compute->last_kernel - compute->first_kernel));
    }
    CHECK(ranks.process(0_rank) != ranks.process(1_rank));
    CHECK(ranks.process(0_rank) != getpid());
  }
  CHECK_FALSE(has_living_children());
}

TEST_CASE("real ranks stay on processors of their own, where there are enough of them", "[real ranks]") {
  cpu_set_t usable;
  REQUIRE(sched_getaffinity(0, sizeof usable, &usable) == 0);
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  RealRanks ranks(job, program, {0_rank, 1_rank}, {});
  cpu_set_t taken[2];
  for (const Rank rank : program.ranks.ids()) {
    const Step step = first_step_with(program, rank, Op::compute);
    ranks.execute(step, instruction_at(program, step));
    cpu_set_t& set = taken[rank.value()];
    REQUIRE(sched_getaffinity(ranks.process(rank), sizeof set, &set) == 0);
    CHECK(CPU_COUNT(&set) == (CPU_COUNT(&usable) < 2 ? 1 : CPU_COUNT(&usable) / 2));
  }
  cpu_set_t both;
  CPU_AND(&both, &taken[0], &taken[1]);
  CHECK(CPU_COUNT(&both) == (CPU_COUNT(&usable) < 2 ? 1 : 0));
}

TEST_CASE("a real rank that is killed is named, with its signal and what it was to do", "[real ranks]") {
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  const Step sends = first_step_with(program, 0_rank, Op::send),
             receives = first_step_with(program, 1_rank, Op::recv);
  const Step computes = first_step_with(program, 0_rank, Op::compute);
  for (const Rank killed : {0_rank, 1_rank}) {
    RealRanks ranks(job, program, {0_rank, 1_rank}, {});
    ranks.execute(computes, instruction_at(program, computes));
    kill(ranks.process(killed), SIGKILL);
    const std::string named = fmt::format("real rank {} (process {}) was ended by signal 9 (Killed)", killed,
                                          ranks.process(killed));
    const std::string failure = failure_of([&] { ranks.communicate({sends, receives}, true); });
    CHECK_THAT(failure, Catch::Contains(named) && Catch::Contains("stage"));
  }
  CHECK_FALSE(has_living_children());
}

TEST_CASE("a real rank that was killed is named while another is asked", "[real ranks]") {
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  RealRanks ranks(job, program, {0_rank, 1_rank}, {});
  const Step computes = first_step_with(program, 0_rank, Op::compute);
  kill(ranks.process(0_rank), SIGSTOP);  // it never answers, so what is said is about the other
  kill(ranks.process(1_rank), SIGKILL);
  CHECK_THAT(failure_of([&] { ranks.execute(computes, instruction_at(program, computes)); }),
             Catch::StartsWith("real rank 1 ") && Catch::Contains("signal 9"));
}

TEST_CASE("a real rank that does not answer is named after its deadline", "[real ranks]") {
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  RealRanks ranks(job, program, {0_rank}, {.deadline_s = 0.3});
  kill(ranks.process(0_rank), SIGSTOP);
  const Step computes = first_step_with(program, 0_rank, Op::compute);
  CHECK_THAT(failure_of([&] { ranks.execute(computes, instruction_at(program, computes)); }),
             Catch::StartsWith("real rank 0 ") && Catch::Contains("has not answered for 0.3 s"));
}

TEST_CASE("a real rank that is stopped for too long is named; one that goes on in time lives",
          "[real ranks]") {
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  const Step computes = first_step_with(program, 0_rank, Op::compute);
  RealRanks ranks(job, program, {0_rank, 1_rank}, {.silence_s = 3});
  const int process = ranks.process(0_rank);
  kill(process, SIGSTOP);
  std::thread wakes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(process, SIGCONT);
  });
  CHECK(ranks.loss_sum(0_rank) == 0);
  wakes.join();
  kill(process, SIGSTOP);
  CHECK_THAT(failure_of([&] { ranks.execute(computes, instruction_at(program, computes)); }),
             Catch::StartsWith(
                 fmt::format("real rank 0 (process {}) has been stopped for 3 s, at stage ", process)));
}

TEST_CASE("real ranks die with the process that asks them, however it dies", "[real ranks]") {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // the orphans become children of this process
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t asker = fork();
  if (asker == 0) {
    RealRanks ranks(job, program, {0_rank, 1_rank}, {});
    for (const Rank rank : program.ranks.ids()) {
      const Step step = first_step_with(program, rank, Op::compute);
      ranks.execute(step, instruction_at(program, step));
      const int process = ranks.process(rank);
      if (write(ends[1], &process, sizeof process) != sizeof process) _exit(1);
    }
    for (;;) pause();
  }
  int processes[2];
  for (int& process : processes) REQUIRE(read(ends[0], &process, sizeof process) == sizeof process);
  kill(asker, SIGKILL);
  REQUIRE(waitpid(asker, nullptr, 0) == asker);
  for (const int process : processes)
    REQUIRE(waitpid(process, nullptr, 0) == process);  // it ends: by the kernel, or as nobody asks any more
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("what a real rank refuses is refused here", "[real ranks]") {
  Job job = tiny_job({1, 2, 1});
  job.train.precision = Format::bf16;
  const Program program = compile(job);
  RealRanks ranks(job, program, {1_rank}, {});
  const Step computes = first_step_with(program, 1_rank, Op::compute);
  try {
    ranks.execute(computes, instruction_at(program, computes));
    FAIL("it computed");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "host-precision");
    CHECK(refusal.exit_code() == Exit::infeasible);
    CHECK(refusal.hint() == "train: {precision: fp32}");
  }
}
