// Starts, watches and ends the processes of a pool. A child writes its answer only when it is complete, so the parent
// reads one answer to its end before it looks for the next.
#include "sim/workers/pool.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "models/base/refusal.hpp"

// Its file points at text of this program, which has the same address in a child.
template <>
constexpr bool motley::kSentAsBytes<motley::RefusalSite> = true;

namespace motley::pool {
namespace {

using Work = std::function<void(std::size_t task, MessageWriter& out)>;
using Take = std::function<void(std::size_t task, MessageReader& in)>;

struct Child {
  std::size_t task = 0;
  pid_t process = 0;
  int answer = 0;  // the end of the pipe that the parent reads
};

// Waits until the process has ended and returns the status that waitpid() gives.
int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Says how a process ended that gave no answer.
std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status))
    return fmt::format("its process ended with exit code {} and no answer", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return fmt::format("its process was killed by signal {} ({}{})", signal, strsignal(signal),
                     signal == SIGKILL ? ", as the system does when memory runs out" : "");
}

void write_refusal(MessageWriter& out, const Refusal& refusal) {
  write_value(out, Outcome::refusal);
  write_value(out, refusal.exit_code());
  write_value(out, refusal.kind());
  write_value(out, refusal.where().file);
  write_value(out, refusal.where().line);
  write_value(out, refusal.where().column);
  write_value(out, refusal.message());
  write_value(out, refusal.hint());
  write_value(out, refusal.site());
}

template <class T>
T read_as(MessageReader& in) {
  T value{};
  read_value(in, value);
  return value;
}

Refusal read_refusal(MessageReader& in) {
  const auto exit_code = read_as<Exit>(in);
  const auto kind = read_as<std::string>(in);
  Location where;
  read_value(in, where.file);
  read_value(in, where.line);
  read_value(in, where.column);
  const auto message = read_as<std::string>(in);
  const auto hint = read_as<std::string>(in);
  const auto site = read_as<RefusalSite>(in);
  return Refusal(exit_code, kind, where, message, hint, site);
}

// Everything that a child does: runs the task, writes the answer, exits.
[[noreturn]] void answer(const Work& work, std::size_t task, int descriptor) {
  MessageWriter out(descriptor);
  const auto write_text = [&out](Outcome outcome, const std::string& text) {
    write_value(out, outcome);
    write_value(out, text);
  };
  try {
    try {
      work(task, out);
    } catch (const BrokenMessage&) {
      throw;
    } catch (const Refusal& refusal) {
      write_refusal(out, refusal);
    } catch (const std::logic_error& bug) {
      write_text(Outcome::bug, bug.what());
    } catch (const std::exception& failure) {
      write_text(Outcome::failure, failure.what());
    }
    out.flush();
  } catch (const BrokenMessage&) {
    _exit(static_cast<int>(Exit::failed));
  }
  _exit(static_cast<int>(Exit::ok));
}

class Pool {
 public:
  Pool(std::size_t count, const Work& work, const Take& take, const PoolOptions& options)
      : end_(count), work_(work), take_(take), options_(options) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { end_children_from(0); }

  void run() {
    const std::size_t at_once = options_.processes > 0 ? options_.processes : processors();
    for (std::size_t next = 0; next < end_ || !running_.empty();) {
      if (next < end_ && running_.size() < at_once)
        start(next++);
      else
        take_answers();
    }
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::size_t end_;  // the first task that is not to run: there is none, or this one failed
  const Work& work_;
  const Take& take_;
  const PoolOptions& options_;
  std::vector<Child> running_;
  std::size_t ended_ = 0;
  std::exception_ptr failure_;  // what task end_ threw

  std::string name_of(std::size_t task) const {
    return options_.name ? options_.name(task) : fmt::format("task {}", task);
  }
  void show(std::size_t task) const {
    if (options_.progress) options_.progress(task, ended_);
  }

  void start(std::size_t task) {
    show(task);
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
      throw RunFailure(fmt::format("{}: cannot make a pipe: {}", name_of(task), std::strerror(errno)));
    std::fflush(nullptr);  // output still in buffers must be printed by this process only
    const pid_t parent = getpid();
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(static_cast<int>(Exit::interrupted));  // the parent died before prctl()
      std::signal(SIGINT, SIG_IGN);
      for (const Child& sibling : running_) close(sibling.answer);
      close(ends[0]);
      answer(work_, task, ends[1]);
    }
    close(ends[1]);
    if (process > 0) {
      running_.push_back({task, process, ends[0]});
      return;
    }
    close(ends[0]);
    throw RunFailure(fmt::format("{}: cannot start a process: {}", name_of(task), std::strerror(errno)));
  }

  // Waits until some child answers or ends, then takes the answer of every child that did.
  void take_answers() {
    std::vector<pollfd> pipes;
    for (const Child& child : running_) pipes.push_back({child.answer, POLLIN, 0});
    if (poll(pipes.data(), pipes.size(), -1) < 0) {
      if (errno == EINTR) return;
      throw RunFailure(std::string("cannot wait for processes: ") + std::strerror(errno));
    }
    for (const pollfd& ready : pipes) {
      if (ready.revents == 0) continue;
      const auto child = std::find_if(running_.begin(), running_.end(),
                                      [&](const Child& each) { return each.answer == ready.fd; });
      if (child != running_.end()) take_answer(*child);
    }
  }

  void take_answer(const Child child) {
    std::exception_ptr failure;
    bool answered = false;
    try {
      MessageReader in(child.answer);
      failure = read_answer(child.task, in);
      MOTLEY_CHECK(in.at_end());
      answered = true;
    } catch (const BrokenMessage&) {  // the child's status says why
    }
    std::erase_if(running_, [&](const Child& each) { return each.task == child.task; });
    close(child.answer);
    const int status = wait_for(child.process);
    ++ended_;
    if (!answered || status != 0)
      failure = std::make_exception_ptr(
          RunFailure(fmt::format("{} died: {}", name_of(child.task), how_it_ended(status))));
    if (failure) {
      failure_ = failure;
      end_ = child.task;
      end_children_from(end_);
    }
    show(child.task);
  }

  // Returns what the task threw. Null: the task returned a value, and `take_` has read it.
  std::exception_ptr read_answer(std::size_t task, MessageReader& in) const {
    switch (read_as<Outcome>(in)) {
      case Outcome::value:
        take_(task, in);
        return nullptr;
      case Outcome::refusal:
        return std::make_exception_ptr(read_refusal(in));
      case Outcome::bug:
        return std::make_exception_ptr(std::logic_error(read_as<std::string>(in)));
      case Outcome::failure:
        return std::make_exception_ptr(RunFailure(read_as<std::string>(in)));
    }
    break_promise("a child says what its task came to", __FILE__, __LINE__);
  }

  // Kills the children of this task and all later tasks.
  void end_children_from(std::size_t task) {
    for (const Child& child : running_)
      if (child.task >= task) {
        kill(child.process, SIGKILL);
        close(child.answer);
        wait_for(child.process);
      }
    std::erase_if(running_, [task](const Child& child) { return child.task >= task; });
  }
};

}  // namespace

std::size_t processors() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return 1;
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&usable)));
}

void run(std::size_t count, const Work& work, const Take& take, const PoolOptions& options) {
  Pool(count, work, take, options).run();
}

}  // namespace motley::pool
