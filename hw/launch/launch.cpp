#include "hw/launch/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <span>
#include <utility>

#include "hw/launch/keeper.hpp"
#include "hw/launch/remote_rank.hpp"
#include "hw/launch/rendezvous.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/base/refusal.hpp"

extern char** environ;

namespace motley {
namespace {

// Variables that launchers set. They are removed because they may contradict those that this launcher sets.
constexpr const char* kRemovedVariables[] = {"MOTLEY_RANK",
                                             "MOTLEY_RANK_COUNT",
                                             "MOTLEY_RENDEZVOUS",
                                             "MOTLEY_RENDEZVOUS_LISTENER",
                                             "MOTLEY_JOB_TOKEN",
                                             "MOTLEY_JOB_TOKEN_FILE",
                                             "MOTLEY_DEVICE",
                                             "MOTLEY_NIC",
                                             "RANK",
                                             "WORLD_SIZE",
                                             "MASTER_ADDR",
                                             "MASTER_PORT",
                                             "OMPI_COMM_WORLD_RANK",
                                             "OMPI_COMM_WORLD_SIZE",
                                             "PMIX_RANK",
                                             "SLURM_PROCID",
                                             "SLURM_NTASKS"};

constexpr int kSshFailed = 255;  // its exit code

// The variables that ranks of this host inherit.
std::vector<std::string> inherited_variables() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const std::string name = variable.substr(0, variable.find('='));
    if (std::find(std::begin(kRemovedVariables), std::end(kRemovedVariables), name) ==
        std::end(kRemovedVariables))
      variables.push_back(variable);
  }
  return variables;
}

// Pointers into `strings` with a null after the last, as execvpe needs them.
std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& each : strings) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  return pointers;
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

// The listening socket of rank 0, if it is on this host, and where the ranks meet.
class Meeting {
 public:
  Meeting(const Binding& binding, const std::string& host) : at_{host.empty() ? "127.0.0.1" : host, 0} {
    constexpr std::uint16_t kFirst = 20'000, kPorts = 12'000;
    for (const RankBinding& each : binding)
      if (host.empty() && !is_this_host(each.host))
        throw Refusal(
            Exit::usage, "no-rendezvous-host", {},
            fmt::format("ranks run on {}, and no address is known where all ranks meet", each.host),
            fmt::format("--rendezvous-host: an address of {}, where rank 0 runs, that all hosts reach",
                        binding[kLeader].host));
    if (!is_this_host(binding[kLeader].host)) {
      const Nonce drawn = random_nonce();
      at_.port = static_cast<std::uint16_t>(
          kFirst +
          (std::to_integer<unsigned>(drawn[0]) << 8U | std::to_integer<unsigned>(drawn[1])) % kPorts);
      return;
    }
    try {
      door_ = listen_on(at_);
    } catch (const SocketFailure& failure) {
      throw Refusal(Exit::usage, "bad-rendezvous", {},
                    fmt::format("rank 0 cannot listen at {}: {}", at_.host, failure.what()),
                    "--rendezvous-host: an address of this host that all hosts reach");
    }
    at_.port = door_.local_port();
  }
  const Address& at() const { return at_; }
  int door() const { return door_.descriptor(); }  // -1: rank 0 is on another host
  void close_door() { door_ = Socket(); }

 private:
  Address at_;
  Socket door_;
};

// The processes that were started, one for each rank: the rank itself, or an ssh.
class RankProcesses {
 public:
  explicit RankProcesses(const LaunchOptions& options)
      : options_(options), binding_(binding_of(options)), meeting_(binding_, options.rendezvous_host) {}
  ~RankProcesses() {  // runs also when start_all() threw
    while (running() > 0) {
      signal_all(SIGKILL);
      const timespec while_ending{0, 1'000'000};
      nanosleep(&while_ending, nullptr);
      reap();
    }
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void start_all() {
    for (const Rank rank : binding_.ids()) start(rank);
    meeting_.close_door();  // rank 0 has inherited it
  }

  LaunchResult wait_all() {
    while (running() > 0) {
      const timespec while_waiting{0, 100'000'000};
      const sigset_t set = watched_signals();
      const int caught = sigtimedwait(&set, nullptr, &while_waiting);
      if (caught == SIGINT || caught == SIGTERM || caught == SIGHUP) pass_on(caught);
      reap();
      const double now_s = monotonic_s();
      if (!is_terminated_ && ending_since_s_ > 0 && now_s > ending_since_s_ + kTelling_s) terminate();
      killing_ = killing_ || (kill_at_s_ > 0 && now_s > kill_at_s_);
      if (killing_) signal_all(SIGKILL);
    }
    return result_;
  }

 private:
  static constexpr double kRemoteEnd_s = 3;  // within which an ssh ends whose input has
  static constexpr double kTelling_s =
      0.5;  // for ranks to tell, and to end by themselves, when one has failed
  struct Child {
    Rank rank;
    pid_t process = 0;
    bool running = true;
    int stopped_by = 0;      // the signal; 0: it is not stopped, or on another host
    Socket line;             // to the input of an ssh; closed: the rank is on this host, or is to be killed
    double closed_at_s = 0;  // when it was closed; 0: it was not
  };
  const LaunchOptions& options_;
  const Binding binding_;
  Meeting meeting_;
  const std::string token_ = random_secret();  // of this job
  std::vector<Child> children_;
  const Keeper keeper_;
  LaunchResult result_;
  bool is_of_signal_ =
      false;  // whether the result tells of a rank that a signal has ended which nobody here sent
  double ending_since_s_ = 0;  // time of the first failure by monotonic_s(); 0: no rank has failed
  double kill_at_s_ = 0;       // ranks that still run then get SIGKILL; 0: never
  bool passed_on_ = false, is_terminated_ = false, killing_ = false;

  long running() const {
    return std::count_if(children_.begin(), children_.end(),
                         [](const Child& child) { return child.running; });
  }
  bool is_remote(Rank rank) const { return !is_this_host(binding_[rank].host); }
  // Signals the rank and all processes that it started.
  void signal(Child& child, int number) const {
    if (!child.running) return;
    if (!is_remote(child.rank)) {
      kill(-child.process, number);
    } else if (number != SIGKILL) {
      write_line(child, number == SIGINT    ? "INT\n"
                        : number == SIGHUP  ? "HUP\n"
                        : number == SIGCONT ? "CONT\n"
                                            : "TERM\n");
    } else if (child.line.open()) {
      child.line = Socket();
      child.closed_at_s = monotonic_s();
    } else if (monotonic_s() > child.closed_at_s + kRemoteEnd_s) {
      kill(-child.process, SIGKILL);
    }
  }
  void signal_all(int number) {
    for (Child& child : children_) signal(child, number);
  }
  static void write_line(const Child& child, const std::string& text) {
    try {
      if (child.line.open()) child.line.write_all(std::as_bytes(std::span(text)), kRemoteEnd_s);
    } catch (const SocketFailure&) {  // the ssh has ended, and reap() says so
    }
  }
  void pass_on(int number) {
    killing_ = passed_on_;
    if (!passed_on_) signal_all(number);
    passed_on_ = result_.was_told_to_end = true;
    if (number == SIGINT) return;  // ranks that train end their step first
    signal_all(SIGCONT);
    kill_at_s_ = monotonic_s() + options_.end_grace_s;
  }
  // One that is stopped takes no other signal before it goes on.
  void terminate() {
    signal_all(SIGTERM);
    signal_all(SIGCONT);
    is_terminated_ = true;
    kill_at_s_ = monotonic_s() + options_.grace_s;
  }

  // What this launcher tells a rank.
  std::vector<std::string> own_variables(Rank rank) const {
    const RankBinding& mine = binding_[rank];
    std::vector<std::string> variables = {
        fmt::format("MOTLEY_RANK={}", rank), fmt::format("MOTLEY_RANK_COUNT={}", binding_.size()),
        "MOTLEY_RENDEZVOUS=" + print(meeting_.at()), "MOTLEY_JOB_TOKEN=" + token_};
    if (mine.device) variables.push_back(fmt::format("MOTLEY_DEVICE={}", *mine.device));
    if (!mine.nic.empty()) variables.push_back("MOTLEY_NIC=" + mine.nic);
    return variables;
  }

  void start(Rank rank) {
    std::vector<std::string> environment = inherited_variables(), command = options_.command;
    Socket input, line;
    if (is_remote(rank)) {
      command = ssh_command(binding_[rank], std::filesystem::current_path().string(), command);
      int ends[2];
      MOTLEY_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
      input = Socket(ends[0]);
      line = Socket(ends[1]);
      fcntl(line.descriptor(), F_SETFL, O_NONBLOCK);
    } else {
      for (std::string& variable : own_variables(rank)) environment.push_back(std::move(variable));
      if (rank == kLeader)
        environment.push_back(fmt::format("MOTLEY_RENDEZVOUS_LISTENER={}", meeting_.door()));
    }
    children_.push_back({rank, run(rank, command, environment, input), true, 0, std::move(line), 0});
    // What a rank of another host has started ends there, when its ssh does.
    if (!is_remote(rank)) keeper_.watch(children_.back().process);
    if (is_remote(rank)) write_line(children_.back(), remote_input(own_variables(rank)));
  }

  pid_t run(Rank rank, std::vector<std::string>& command, std::vector<std::string>& environment,
            const Socket& input) {
    const auto environment_pointers = pointers_to(environment), command_pointers = pointers_to(command);
    const std::vector<int> processors = is_remote(rank) ? std::vector<int>() : binding_[rank].processors;
    const cpu_set_t set = set_of(processors);
    int failure[2];
    MOTLEY_CHECK(pipe2(failure, O_CLOEXEC) == 0);
    const Socket reading(failure[0]);
    const pid_t launcher = getpid();
    const pid_t process = fork();
    if (process == 0) {
      if (!processors.empty()) sched_setaffinity(0, sizeof set, &set);
      execute(rank, launcher, command_pointers, environment_pointers, input.descriptor());
      const int why = errno;
      [[maybe_unused]] const ssize_t written = write(failure[1], &why, sizeof why);
      _exit(127);
    }
    close(failure[1]);
    MOTLEY_CHECK(process > 0);
    setpgid(process, process);  // the child also calls this, and either may be first
    int why = 0;
    if (read(reading.descriptor(), &why, sizeof why) == sizeof why) {
      waitpid(process, nullptr, 0);
      throw Refusal(Exit::usage, "cannot-run", {},
                    fmt::format("cannot run `{}`: {}", command[0], std::strerror(why)),
                    "the command stands after `--` and is searched in PATH");
    }
    return process;
  }

  // Runs in the child and makes only system calls. It returns only if the command cannot be run; errno says why.
  // `input`: -1: none.
  void execute(Rank rank, pid_t launcher, const std::vector<char*>& command,
               const std::vector<char*>& environment, int input) const {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(127);  // the launcher died before prctl
    if (rank == kLeader && meeting_.door() >= 0) fcntl(meeting_.door(), F_SETFD, 0);
    if (input >= 0)
      dup2(input, STDIN_FILENO);
    else if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0)
      dup2(nothing, STDIN_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execvpe(command[0], command.data(), environment.data());
  }

  void reap() {
    for (Child& child : children_) {
      int status = 0;
      constexpr int kWhat = WNOHANG | WUNTRACED | WCONTINUED;
      if (!child.running || waitpid(child.process, &status, kWhat) != child.process) continue;
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        child.stopped_by = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
        continue;
      }
      kill(-child.process, SIGKILL);  // kills processes that the rank left behind
      keeper_.forget(child.process);
      child.running = false;
      if (status != 0) note_failure(child, status);
    }
  }
  std::string name_of(const Child& child) const {
    return is_remote(child.rank) ? fmt::format("rank {} on {}", child.rank, binding_[child.rank].host)
                                 : fmt::format("rank {} (process {})", child.rank, child.process);
  }
  // Ranks that others make fail may end before those others: a signal from outside counts before any exit code.
  void note_failure(const Child& child, int status) {
    const bool remote = is_remote(child.rank);
    const int exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    // A shell on the other host tells a signal by the exit code.
    const int signal = WIFSIGNALED(status)                                   ? WTERMSIG(status)
                       : remote && exit_code > 128 && exit_code < 128 + NSIG ? exit_code - 128
                                                                             : 0;
    const bool is_of_signal =
        signal != 0 && !passed_on_ && !killing_ && !(is_terminated_ && signal == SIGTERM);
    if (result_.exit_code != 0 && (is_of_signal_ || !is_of_signal)) return;
    is_of_signal_ = is_of_signal;
    result_.exit_code = exit_code;
    result_.message =
        signal != 0 ? fmt::format("{} was ended by signal {} ({})", name_of(child), signal, strsignal(signal))
                    : fmt::format("{} ended with exit code {}", name_of(child), exit_code);
    if (remote && exit_code == kSshFailed) result_.message += ", as where ssh cannot reach it";
    for (const Child& other : children_)
      if (!is_of_signal && other.running && other.stopped_by != 0)
        result_.message = fmt::format("{} is stopped by signal {} ({}), and {}", name_of(other),
                                      other.stopped_by, strsignal(other.stopped_by), result_.message);
    if (ending_since_s_ <= 0) ending_since_s_ = monotonic_s();
  }
};

}  // namespace

Binding binding_of(const LaunchOptions& options) {
  Binding binding = options.binding;
  if (binding.empty())
    for (int i = 0; i < options.rank_count; ++i) binding.add();
  return options.bind ? bound_evenly(std::move(binding)) : binding;
}

void stay_on_processors_of(Rank rank, int rank_count) {
  Binding binding;
  for (int i = 0; i < rank_count; ++i) binding.add();
  const std::vector<int> processors = bound_evenly(std::move(binding))[rank].processors;
  const cpu_set_t set = set_of(processors);
  if (!processors.empty()) sched_setaffinity(0, sizeof set, &set);
}

LaunchResult launch(const LaunchOptions& options) {
  if (options.binding.empty() && (options.rank_count < 1 || options.rank_count > 1024))
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
