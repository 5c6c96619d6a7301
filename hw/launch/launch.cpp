#include "hw/launch/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "hw/launch/rendezvous.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/base/refusal.hpp"

extern char** environ;

namespace motley {
namespace {

// Variables that launchers set. They are removed because they may contradict those that this launcher sets.
constexpr const char* kRemovedVariables[] = {"MOTLEY_RANK",       "MOTLEY_RANK_COUNT",
                                             "MOTLEY_RENDEZVOUS", "MOTLEY_RENDEZVOUS_LISTENER",
                                             "MOTLEY_JOB_TOKEN",  "RANK",
                                             "WORLD_SIZE",        "MASTER_ADDR",
                                             "MASTER_PORT",       "SLURM_PROCID",
                                             "SLURM_NTASKS"};

std::vector<std::string> environment_of(Rank rank, int rank_count, const Socket& door,
                                        const std::string& token) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const std::string name = variable.substr(0, variable.find('='));
    if (std::find(std::begin(kRemovedVariables), std::end(kRemovedVariables), name) ==
        std::end(kRemovedVariables))
      variables.push_back(variable);
  }
  variables.push_back(fmt::format("MOTLEY_RANK={}", rank));
  variables.push_back(fmt::format("MOTLEY_RANK_COUNT={}", rank_count));
  variables.push_back(fmt::format("MOTLEY_RENDEZVOUS=127.0.0.1:{}", door.local_port()));
  variables.push_back("MOTLEY_JOB_TOKEN=" + token);
  if (rank == kLeader) variables.push_back(fmt::format("MOTLEY_RENDEZVOUS_LISTENER={}", door.descriptor()));
  return variables;
}

// Pointers into `strings` with a null after the last, as execvpe needs them.
std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& each : strings) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The processors of a rank: as many as every other rank has, and none that another has. Empty: any, as this process may
// use fewer than there are ranks, or more than a cpu_set_t holds.
std::vector<int> processors_of(Rank rank, int rank_count) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return {};
  std::vector<int> numbers;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &usable)) numbers.push_back(i);
  const auto each = static_cast<std::ptrdiff_t>(numbers.size()) / rank_count;
  const auto first = numbers.begin() + static_cast<std::ptrdiff_t>(rank.value()) * each;
  return {first, first + each};
}

cpu_set_t set_of(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int each : processors) CPU_SET(each, &set);
  return set;
}

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int each : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set, each);
  return set;
}

// Blocks the watched signals, so that they wait for sigtimedwait. The destructor restores the old mask.
class SignalsHeld {
 public:
  SignalsHeld() {
    const sigset_t set = watched_signals();
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

// The processes that were started, one for each rank.
class RankProcesses {
 public:
  explicit RankProcesses(const LaunchOptions& options)
      : options_(options), door_(listen_on({"127.0.0.1", 0})) {}
  ~RankProcesses() {  // runs also when start_all() threw
    signal_all(SIGKILL);
    for (const Child& child : children_)
      if (child.running) waitpid(child.process, nullptr, 0);
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void start_all() {
    for (Rank rank : IdRange<Rank>(at(options_.rank_count))) start(rank);
    door_ = Socket();  // rank 0 has inherited it
  }

  LaunchResult wait_all() {
    while (running() > 0) {
      const timespec while_waiting{0, 100'000'000};
      const sigset_t set = watched_signals();
      const int caught = sigtimedwait(&set, nullptr, &while_waiting);
      if (caught == SIGINT || caught == SIGTERM || caught == SIGHUP) pass_on(caught);
      reap();
      if (ending_since_s_ > 0 && monotonic_s() > ending_since_s_ + options_.grace_s) signal_all(SIGKILL);
    }
    return result_;
  }

 private:
  struct Child {
    Rank rank;
    pid_t process = 0;
    bool running = true;
  };
  const LaunchOptions& options_;
  Socket door_;
  const std::string token_ = random_secret();  // of this job
  std::vector<Child> children_;
  LaunchResult result_;
  double ending_since_s_ = 0;  // time of the first failure by monotonic_s(); 0: no rank has failed
  bool passed_on_ = false;

  long running() const {
    return std::count_if(children_.begin(), children_.end(),
                         [](const Child& child) { return child.running; });
  }
  void signal_all(int number) const {
    for (const Child& child : children_)
      if (child.running) kill(-child.process, number);  // the rank and all processes that it started
  }
  void pass_on(int number) {
    signal_all(passed_on_ ? SIGKILL : number);
    passed_on_ = true;
  }

  void start(Rank rank) {
    auto environment = environment_of(rank, options_.rank_count, door_, token_);
    auto command = options_.command;
    const auto environment_pointers = pointers_to(environment), command_pointers = pointers_to(command);
    const std::vector<int> processors =
        options_.bind ? processors_of(rank, options_.rank_count) : std::vector<int>();
    const cpu_set_t set = set_of(processors);
    int failure[2];
    MOTLEY_CHECK(pipe2(failure, O_CLOEXEC) == 0);
    const Socket reading(failure[0]);
    const pid_t launcher = getpid();
    const pid_t process = fork();
    if (process == 0) {
      if (!processors.empty()) sched_setaffinity(0, sizeof set, &set);
      execute(rank, launcher, command_pointers, environment_pointers);
      const int why = errno;
      [[maybe_unused]] const ssize_t written = write(failure[1], &why, sizeof why);
      _exit(127);
    }
    close(failure[1]);
    MOTLEY_CHECK(process > 0);
    setpgid(process, process);  // the child also calls this, and either may be first
    children_.push_back({rank, process, true});
    int why = 0;
    if (read(reading.descriptor(), &why, sizeof why) == sizeof why)
      throw Refusal(Exit::usage, "cannot-run", {},
                    fmt::format("cannot run `{}`: {}", options_.command[0], std::strerror(why)),
                    "the command stands after `--` and is searched in PATH");
  }

  // Runs in the child and makes only system calls. It returns only if the command cannot be run; errno says why.
  void execute(Rank rank, pid_t launcher, const std::vector<char*>& command,
               const std::vector<char*>& environment) const {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(127);  // the launcher died before prctl
    if (rank == kLeader) fcntl(door_.descriptor(), F_SETFD, 0);
    if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0) dup2(nothing, STDIN_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execvpe(command[0], command.data(), environment.data());
  }

  void reap() {
    for (Child& child : children_) {
      int status = 0;
      if (!child.running || waitpid(child.process, &status, WNOHANG) != child.process) continue;
      kill(-child.process, SIGKILL);  // kills processes that the rank left behind
      child.running = false;
      if (status != 0) note_failure(child, status);
    }
  }
  void note_failure(const Child& child, int status) {
    if (result_.exit_code != 0) return;  // a later failure, most likely caused by the first
    const bool by_signal = WIFSIGNALED(status);
    result_.exit_code = by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    result_.message = by_signal ? fmt::format("rank {} (process {}) was ended by signal {} ({})", child.rank,
                                              child.process, WTERMSIG(status), strsignal(WTERMSIG(status)))
                                : fmt::format("rank {} (process {}) ended with exit code {}", child.rank,
                                              child.process, result_.exit_code);
    ending_since_s_ = monotonic_s();
    signal_all(SIGTERM);
  }
};

}  // namespace

void stay_on_processors_of(Rank rank, int rank_count) {
  const std::vector<int> processors = processors_of(rank, rank_count);
  const cpu_set_t set = set_of(processors);
  if (!processors.empty()) sched_setaffinity(0, sizeof set, &set);
}

LaunchResult launch(const LaunchOptions& options) {
  if (options.rank_count < 1 || options.rank_count > 1024)
    throw Refusal(Exit::usage, "bad-rank-count", {}, fmt::format("{} ranks on one host", options.rank_count),
                  "from 1 to 1024");
  if (options.command.empty())
    throw Refusal(Exit::usage, "cannot-run", {}, "no command to run",
                  "motley launch -n 2 -- motley train FILE");
  const SignalsHeld held;
  RankProcesses ranks(options);
  ranks.start_all();
  return ranks.wait_all();
}

}  // namespace motley
