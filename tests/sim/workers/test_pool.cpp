// The pool of processes: what its tasks return and throw, how it ends them, and how much memory it needs. Tasks whose
// order matters wait for each other through pipes; no test waits for time to pass.
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <limits>
#include <new>
#include <numeric>
#include <stdexcept>

#include "models/base/refusal.hpp"
#include "sim/workers/pool.hpp"

using namespace motley;

namespace {

// A pipe that carries bytes from one process to another.
class Pipe {
 public:
  Pipe() { REQUIRE(pipe(ends_.data()) == 0); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(ends_[0]);
    close_writer();
  }
  void give() const {
    const char byte = '.';
    if (write(ends_[1], &byte, 1) != 1) _exit(1);
  }
  // Waits for a byte. Returns false if no process is left that could write one.
  bool take() const {
    char byte = 0;
    ssize_t length = 0;
    while ((length = read(ends_[0], &byte, 1)) < 0 && errno == EINTR) {
    }
    return length == 1;
  }
  void close_writer() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  int reader() const { return ends_[0]; }

 private:
  std::array<int, 2> ends_{};
};

bool has_children() { return waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

PoolOptions at_once(std::size_t processes) {
  PoolOptions options;
  options.processes = processes;
  options.name = [](std::size_t task) { return "run-" + std::to_string(task); };
  return options;
}

}  // namespace

TEST_CASE("values come in the order of their tasks when the tasks end in the opposite order") {
  constexpr std::size_t kTasks = 5;
  std::array<Pipe, kTasks> may_end;
  may_end[kTasks - 1].give();
  std::vector<std::size_t> ends;
  PoolOptions options = at_once(kTasks);
  options.progress = [&](std::size_t task, std::size_t ended) {
    if (ended == ends.size()) return;  // the task begins
    ends.push_back(task);
    if (task > 0) may_end[task - 1].give();
  };
  const auto values = map_in_pool(
      kTasks,
      [&](std::size_t task) {
        may_end[task].take();
        return 10 * task;
      },
      options);
  CHECK(values == std::vector<std::size_t>{0, 10, 20, 30, 40});
  CHECK(ends == std::vector<std::size_t>{4, 3, 2, 1, 0});
  CHECK_FALSE(has_children());
}

TEST_CASE("as many processes run at once as were asked for, each for one task") {
  constexpr std::size_t kTasks = 7;
  std::size_t begun = 0, most = 0;
  PoolOptions options = at_once(3);
  options.progress = [&, last = std::size_t{0}](std::size_t, std::size_t ended) mutable {
    if (ended == last) most = std::max(most, ++begun - ended);
    last = ended;
  };
  auto processes = map_in_pool(
      kTasks, [](std::size_t) { return getpid(); }, options);
  CHECK(begun == kTasks);
  CHECK(most == 3);
  std::sort(processes.begin(), processes.end());
  CHECK(std::unique(processes.begin(), processes.end()) == processes.end());
  CHECK(std::find(processes.begin(), processes.end(), getpid()) == processes.end());
  CHECK(map_in_pool(
            0, [](std::size_t) { return 1; }, options)
            .empty());
}

TEST_CASE("any number of processes gives the same values") {
  const auto task = [](std::size_t i) { return std::vector<double>(i, 1.0 / static_cast<double>(i + 1)); };
  const auto alone = map_in_pool(9, task, at_once(1));
  CHECK(map_in_pool(9, task, at_once(2)) == alone);
  CHECK(map_in_pool(9, task, at_once(20)) == alone);
  CHECK(map_in_pool(9, task) == alone);
}

TEST_CASE("a process that is killed is a failure that names its task") {
  const auto killed = [](std::size_t task) {
    if (task == 2) std::raise(SIGKILL);
    return task;
  };
  CHECK_THROWS_AS(map_in_pool(4, killed, at_once(2)), RunFailure);
  CHECK_THROWS_WITH(map_in_pool(4, killed, at_once(2)),
                    Catch::StartsWith("run-2 died: its process was killed by signal 9 (Killed"));
  CHECK_FALSE(has_children());
}

TEST_CASE(
    "a process that ends without an answer, or in the middle of one, is a failure that names its task") {
  const auto leaves = [](std::size_t task) {
    if (task == 1) _exit(7);
    return task;
  };
  CHECK_THROWS_WITH(map_in_pool(2, leaves, at_once(1)),
                    "run-1 died: its process ended with exit code 7 and no answer");
  const auto half = [](std::size_t, MessageWriter& out) {
    write_value(out, pool::Outcome::value);
    write_value(out, std::size_t{1000});  // the length of a text that never comes
    out.flush();
    _exit(0);
  };
  std::string text;
  const auto take = [&](std::size_t, MessageReader& in) { read_value(in, text); };
  CHECK_THROWS_WITH(pool::run(1, half, take, at_once(1)),
                    "run-0 died: its process ended with exit code 0 and no answer");
}

TEST_CASE("a refusal arrives with all that it holds") {
  const Refusal refusal(Exit::infeasible, "no-such-kind", {.file = "a.yaml", .line = 3, .column = 14},
                        "what is wrong\nin two lines", "a hint");
  try {
    map_in_pool(
        1, [&](std::size_t) -> int { throw refusal; }, at_once(1));
    FAIL("nothing was thrown");
  } catch (const Refusal& arrived) {
    CHECK(arrived.exit_code() == Exit::infeasible);
    CHECK(arrived.kind() == "no-such-kind");
    CHECK(arrived.where().file == "a.yaml");
    CHECK(arrived.where().line == 3);
    CHECK(arrived.where().column == 14);
    CHECK(arrived.message() == "what is wrong\nin two lines");
    CHECK(arrived.hint() == "a hint");
    CHECK(std::string(arrived.what()) == refusal.what());
  }
}

TEST_CASE("failures and bugs stay what they are; any other exception is a failure") {
  const auto thrown = [](const auto& exception) {
    return [exception](std::size_t) -> int { throw exception; };
  };
  CHECK_THROWS_AS(map_in_pool(1, thrown(RunFailure("rank 3 is gone"))), RunFailure);
  CHECK_THROWS_WITH(map_in_pool(1, thrown(RunFailure("rank 3 is gone"))), "rank 3 is gone");
  CHECK_THROWS_AS(map_in_pool(1, thrown(std::logic_error("broken"))), std::logic_error);
  CHECK_THROWS_WITH(map_in_pool(1, thrown(std::out_of_range("no 7"))), "no 7");
  CHECK_THROWS_AS(map_in_pool(1, thrown(std::bad_alloc())), RunFailure);
}

TEST_CASE("of tasks that fail the first by number counts, and later ones are ended or never begun") {
  Pipe fourth_failed, first_failed;
  std::vector<std::size_t> begun, ended;
  PoolOptions options = at_once(5);
  options.progress = [&](std::size_t task, std::size_t ended_count) {
    if (ended_count == ended.size()) {
      begun.push_back(task);
      return;
    }
    ended.push_back(task);
    if (task == 4) fourth_failed.give();
    if (task == 1) first_failed.give();
  };
  const auto fails = [&](std::size_t task) -> int {
    if (task == 0) first_failed.take();
    if (task == 1) fourth_failed.take();
    if (task == 2 || task == 3) pause();  // waits to be killed
    if (task == 1 || task == 4) throw RunFailure("task " + std::to_string(task) + " failed");
    return 0;
  };
  CHECK_THROWS_WITH(map_in_pool(9, fails, options), "task 1 failed");
  CHECK(begun == std::vector<std::size_t>{0, 1, 2, 3, 4});
  CHECK(ended == std::vector<std::size_t>{4, 1, 0});
  CHECK_FALSE(has_children());
}

namespace {

struct Parts {
  double number = 0;
  std::optional<double> maybe;
  std::string text;
  std::vector<std::optional<std::string>> list;
};
template <class T>
requires std::is_same_v<std::remove_const_t<T>, Parts>
auto fields_of(T& parts) {
  auto& [number, maybe, text, list] = parts;
  return std::tie(number, maybe, text, list);
}

std::vector<std::uint64_t> bits_of(const std::vector<double>& numbers) {
  std::vector<std::uint64_t> bits;
  for (const double number : numbers) bits.push_back(std::bit_cast<std::uint64_t>(number));
  return bits;
}

}  // namespace

TEST_CASE("every double arrives bit by bit") {
  using Limits = std::numeric_limits<double>;
  std::vector<double> numbers = {0.0,
                                 -0.0,
                                 0.1,
                                 -1,
                                 Limits::infinity(),
                                 -Limits::infinity(),
                                 Limits::quiet_NaN(),
                                 Limits::denorm_min(),
                                 Limits::min(),
                                 Limits::max(),
                                 Limits::lowest(),
                                 std::bit_cast<double>(std::uint64_t{0xfff8'0000'0000'1234})};
  CHECK(bits_of(run_in_child([&] { return numbers; })) == bits_of(numbers));
  for (const double number : numbers)
    CHECK(bits_of({run_in_child([&] { return number; })}) == bits_of({number}));
}

TEST_CASE("what is absent arrives absent, and what is empty empty") {
  const std::string zeros("a\0b", 3);
  const Parts sent{-0.0, std::nullopt, zeros, {std::nullopt, "", "x", std::nullopt}};
  const Parts arrived = run_in_child([&] { return sent; });
  CHECK(std::signbit(arrived.number));
  CHECK_FALSE(arrived.maybe.has_value());
  CHECK(arrived.text == zeros);
  CHECK(arrived.list == sent.list);
  CHECK(run_in_child([] { return std::optional<double>(-1); }) == std::optional<double>(-1));
  CHECK(run_in_child([] { return std::optional<int>(); }) == std::nullopt);
  CHECK(run_in_child([] { return std::string(); }).empty());
}

TEST_CASE("values larger than a pipe arrive whole, from several tasks at once") {
  const auto large = [](std::size_t task) {
    std::vector<std::string> texts(3 + task,
                                   std::string(100'000 * (task + 1), static_cast<char>('a' + task)));
    texts.emplace_back("the end");
    return texts;
  };
  const auto arrived = map_in_pool(6, large, at_once(4));
  for (std::size_t task = 0; task < arrived.size(); ++task) CHECK(arrived[task] == large(task));
}

TEST_CASE("a task may have a pool of its own, whose failures pass through both") {
  const auto sum_of = [](std::size_t task) {
    const auto parts = map_in_pool(
        task, [](std::size_t i) { return i + 1; }, at_once(2));
    return std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  };
  CHECK(map_in_pool(5, sum_of, at_once(2)) == std::vector<std::size_t>{0, 1, 3, 6, 10});
  const auto killed = [](std::size_t) {
    return run_in_child([]() -> int { return std::raise(SIGKILL); }, "the inner one");
  };
  CHECK_THROWS_WITH(map_in_pool(1, killed, at_once(2)), Catch::StartsWith("the inner one died: "));
}

TEST_CASE("what a task changes stays in its process") {
  int value = 1;
  CHECK(map_in_pool(
            3, [&](std::size_t) { return ++value; }, at_once(3)) == std::vector<int>{2, 2, 2});
  CHECK(value == 1);
}

TEST_CASE("an interrupt that reaches all processes of a terminal is answered by the first alone") {
  const auto before = std::signal(SIGINT, SIG_DFL);
  const auto interrupted = [](std::size_t task) {
    std::raise(SIGINT);
    return task + 1;
  };
  CHECK(map_in_pool(2, interrupted, at_once(2)) == std::vector<std::size_t>{1, 2});
  std::signal(SIGINT, before);
}

TEST_CASE("whatever is thrown in this process, no child is left") {
  PoolOptions options = at_once(3);
  options.progress = [](std::size_t task, std::size_t) {
    if (task == 2) throw std::runtime_error("stop");
  };
  const auto waits = [](std::size_t) { return pause(); };
  CHECK_THROWS_WITH(map_in_pool(3, waits, options), "stop");
  CHECK_FALSE(has_children());
}

namespace {

// A process that uses the pool, as `motley` does, and is ended while the pool works. Each task writes to `begun`;
// `lives` is open as long as any of the processes exists.
struct PoolProgram {
  Pipe begun, lives;
  pid_t process = 0;
  static constexpr int kTasks = 4;  // the first runs a task of its own

  void start() {
    process = fork();
    if (process != 0) {
      lives.close_writer();
      return;
    }
    setpgid(0, 0);
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
    const auto stays = [this] {
      begun.give();
      return pause();
    };
    map_in_pool(
        kTasks, [&](std::size_t task) { return task == 0 ? run_in_child(stays) : stays(); }, at_once(kTasks));
    _exit(0);
  }
  // Whether all of its processes end by themselves; those that do not are killed.
  bool all_end() const {
    constexpr int kLongEnough = 30'000;  // ms: processes that live longer are assumed to stay for ever
    pollfd end{lives.reader(), POLLIN, 0};
    if (poll(&end, 1, kLongEnough) == 1) return !lives.take();
    kill(-process, SIGKILL);
    return false;
  }
};

}  // namespace

TEST_CASE("a program that is interrupted or killed leaves no process behind") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGKILL);
  const bool to_the_group = GENERATE(false, true);
  CAPTURE(signal, to_the_group);
  PoolProgram program;
  program.start();
  for (int task = 0; task < PoolProgram::kTasks; ++task) REQUIRE(program.begun.take());
  kill(to_the_group ? -program.process : program.process, signal);
  int status = 0;
  REQUIRE(waitpid(program.process, &status, 0) == program.process);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == signal);
  CHECK(program.all_end());
}

namespace {

// Memory of this process in bytes: "VmRSS" or "VmHWM" in /proc/self/status.
std::int64_t memory_of(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key + ":")) return 1024 * std::stoll(line.substr(key.size() + 1));
  return 0;
}

}  // namespace

TEST_CASE("the last of many tasks takes no more memory than the first") {
  constexpr std::int64_t kTaken = 64 << 20, kSlack = 32 << 20;  // bytes
  constexpr std::size_t kTasks = 12;
  const std::int64_t before = memory_of("VmRSS");
  const auto takes = [](std::size_t) {  // allocates memory and never frees it
    void* const taken =
        mmap(nullptr, kTaken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (taken == MAP_FAILED) throw RunFailure("no memory");
    return memory_of("VmHWM");
  };
  for (const std::int64_t most : map_in_pool(kTasks, takes, at_once(2))) {
    CHECK(most >= kTaken);
    CHECK(most <= before + kTaken + kSlack);
  }
  CHECK(memory_of("VmRSS") <= before + kSlack);
}
