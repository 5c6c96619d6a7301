// Launching real processes: how they end, and that no process is left. A rank that trains is this test program itself,
// started with its hidden test "[rank of a launch]".
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "hw/launch/launch.hpp"
#include "hw/world/train.hpp"
#include "models/base/refusal.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"
#include "tests/support/tiny_text.hpp"

using namespace motley;

namespace {

LaunchResult shell(int ranks, const std::string& script) {
  return launch({ranks, {"/bin/sh", "-c", script}, 20});
}

bool no_child_is_left() { return waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

}  // namespace

TEST_CASE(
    "every rank is told its number and nothing of other launchers, and when all end well so does the "
    "launch") {
  setenv("SLURM_PROCID", "7", 1);
  const TemporaryFolder folder;
  const auto result =
      shell(3, "echo $MOTLEY_RANK of $MOTLEY_RANK_COUNT$SLURM_PROCID > " + folder.path() + "/$MOTLEY_RANK");
  unsetenv("SLURM_PROCID");
  REQUIRE(result.exit_code == 0);
  REQUIRE(result.message.empty());
  for (int rank = 0; rank < 3; ++rank)
    REQUIRE(folder.read(std::to_string(rank)) == std::to_string(rank) + " of 3\n");
  REQUIRE(no_child_is_left());
}

TEST_CASE("ranks have equally many processors and share none, where there are enough of them") {
  cpu_set_t usable;
  REQUIRE(sched_getaffinity(0, sizeof usable, &usable) == 0);
  const int processors = CPU_COUNT(&usable);
  const TemporaryFolder folder;
  const std::string script =
      "grep Cpus_allowed: /proc/self/status | cut -f2 > " + folder.path() + "/$MOTLEY_RANK";
  for (const bool bind : {true, false})
    for (int ranks = 1; ranks <= 3; ++ranks) {
      REQUIRE(launch({ranks, {"/bin/sh", "-c", script}, 20, bind}).exit_code == 0);
      std::vector<bool> taken;
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<bool> mine;  // from the last digit of a hexadecimal mask, whose groups commas part
        std::string mask = folder.read(std::to_string(rank));
        std::reverse(mask.begin(), mask.end());
        for (const char digit : mask)
          if (std::isxdigit(static_cast<unsigned char>(digit)) != 0)
            for (int bit = 0; bit < 4; ++bit)
              mine.push_back((std::stoi(std::string(1, digit), nullptr, 16) >> bit & 1) != 0);
        const auto count = std::count(mine.begin(), mine.end(), true);
        INFO("rank " << rank << " of " << ranks << (bind ? ", bound" : "") << ", " << processors
                     << " processors");
        if (!bind || ranks > processors) {
          REQUIRE(count == processors);
          continue;
        }
        REQUIRE(count == processors / ranks);
        taken.resize(mine.size());
        for (std::size_t i = 0; i < mine.size(); ++i) {
          REQUIRE_FALSE((taken[i] && mine[i]));
          taken[i] = taken[i] || mine[i];
        }
      }
    }
}

TEST_CASE("when a rank fails the others are ended, and its exit code and number are told") {
  const auto result = shell(3, "if [ $MOTLEY_RANK = 1 ]; then exit 7; fi; sleep 600");
  REQUIRE(result.exit_code == 7);
  REQUIRE_THAT(result.message, Catch::StartsWith("rank 1 (process ") && Catch::EndsWith("exit code 7"));
  REQUIRE(no_child_is_left());
}

TEST_CASE("a rank that a signal ends is told as such") {
  const auto result = shell(2, "if [ $MOTLEY_RANK = 0 ]; then kill -9 $$; fi; sleep 600");
  REQUIRE(result.exit_code == 137);
  REQUIRE_THAT(result.message, Catch::Contains("rank 0 ") && Catch::Contains("signal 9"));
  REQUIRE(no_child_is_left());
}

TEST_CASE("a rank that will not end is killed after the grace") {
  const auto result = launch(
      {2,
       {"/bin/sh", "-c", "if [ $MOTLEY_RANK = 1 ]; then exit 3; fi; trap '' TERM; while :; do sleep 1; done"},
       0.2});
  REQUIRE(result.exit_code == 3);
  REQUIRE(no_child_is_left());
}

TEST_CASE("a rank that ignores SIGTERM is killed some time after the launcher was told to end") {
  const TemporaryFolder folder;
  const pid_t launcher = fork();
  if (launcher == 0) {
    LaunchOptions options{
        1, {"/bin/sh", "-c", "trap '' TERM; : > " + folder.path() + "/ready; while :; do sleep 1; done"}};
    options.end_grace_s = 0.2;
    const LaunchResult result = launch(options);
    _exit(result.was_told_to_end ? result.exit_code : 1);
  }
  while (!std::filesystem::exists(folder.path() + "/ready")) usleep(1000);
  kill(launcher, SIGTERM);
  int status = 0;
  waitpid(launcher, &status, 0);
  REQUIRE(WEXITSTATUS(status) == 137);
}

TEST_CASE("a rank that is stopped is named before one that has noticed") {
  const TemporaryFolder folder;
  const auto result = shell(2, "if [ $MOTLEY_RANK = 1 ]; then : > " + folder.path() +
                                   "/ready; kill -STOP $$; fi; while ! [ -e " + folder.path() +
                                   "/ready ]; do sleep 0.05; done; sleep 1; exit 1");
  REQUIRE(result.exit_code == 1);
  REQUIRE_THAT(result.message, Catch::StartsWith("rank 1 (process ") &&
                                   Catch::Contains("is stopped by signal 19") &&
                                   Catch::Contains("and rank 0 (process "));
  REQUIRE(no_child_is_left());
}

TEST_CASE("a rank that a signal from outside has ended is named before one that has noticed") {
  // Rank 0 ends first.
  const auto result = shell(2, "if [ $MOTLEY_RANK = 0 ]; then exit 1; fi; sleep 0.1; kill -KILL $$");
  REQUIRE(result.exit_code == 137);
  REQUIRE_THAT(result.message, Catch::StartsWith("rank 1 (process ") && Catch::Contains("signal 9"));
}

TEST_CASE("what cannot be run is refused, and so is a number of ranks that makes no sense") {
  REQUIRE_THROWS_WITH(launch({2, {"no-such-command-anywhere"}}),
                      Catch::Contains("cannot run `no-such-command-anywhere`"));
  REQUIRE_THROWS_AS(launch({0, {"true"}}), Refusal);
  REQUIRE_THROWS_AS(launch({1, {}}), Refusal);
  REQUIRE(no_child_is_left());
}

TEST_CASE("a signal to the launcher reaches the ranks") {
  const TemporaryFolder folder;
  const pid_t launcher = fork();
  if (launcher == 0) {
    const auto result =
        shell(2, "trap 'echo got it > " + folder.path() + "/got$MOTLEY_RANK; exit 5' TERM; : > " +
                     folder.path() + "/ready$MOTLEY_RANK; while :; do sleep 0.05; done");
    _exit(result.exit_code);
  }
  for (const char* name : {"/ready0", "/ready1"})
    while (!std::filesystem::exists(folder.path() + name)) usleep(1000);
  kill(launcher, SIGTERM);
  int status = 0;
  waitpid(launcher, &status, 0);
  REQUIRE(WEXITSTATUS(status) == 5);
  REQUIRE(folder.read("got0") == "got it\n");
  REQUIRE(folder.read("got1") == "got it\n");
}

TEST_CASE("launched processes train as threads do") {
  const TemporaryFolder folder;
  const Job job = tests::tiny_job({1, 2, 1});
  TrainOptions options;
  options.steps = 3;
  const auto threads = train_in_process(job, compile(job), tests::tiny_text(), options);
  setenv("MOTLEY_TEST_LOSSES", (folder.path() + "/losses").c_str(), 1);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const auto result = launch({2, {self, "[rank of a launch]", "-o", "/dev/null"}, 5});
  INFO(result.message);
  REQUIRE(result.exit_code == 0);
  std::ostringstream expected;
  expected << std::hexfloat;
  for (double loss : threads.losses) expected << loss << "\n";
  REQUIRE(folder.read("losses") == expected.str());
}

TEST_CASE("trains as one rank of a launch", "[.][rank of a launch]") {
  const auto place = place_from([](const char* name) { return std::getenv(name); });
  if (!place) return;  // only a launch sets a place
  const Job job = tests::tiny_job({1, 2, 1});
  TrainOptions options;
  options.steps = 3;
  const auto result = train_rank(job, compile(job), tests::tiny_text(), *place, options);
  if (place->rank != 0_rank) return;
  std::ofstream file(std::getenv("MOTLEY_TEST_LOSSES"));
  file << std::hexfloat;
  for (double loss : result.losses) file << loss << "\n";
}
