// Ranks as processes that a test forks, joined by messengers on the loopback interface, so that a signal can kill or
// stop one of them.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/refusal.hpp"
#include "tests/support/loopback.hpp"

namespace motley::tests {

class ForkedRanks {
 public:
  // What became of a rank: an empty text where its work is done.
  struct End {
    std::string failure;     // of the run, as RunFailure says it
    std::string other;       // what else it threw
    bool by_signal = false;  // a signal ended it
    double at_s = 0;
  };

  // Each rank makes its messenger and does the work. The process that forks has one thread.
  ForkedRanks(int ranks, const std::function<void(Messenger&)>& work, const Loopback& how) {
    std::vector<MessengerOptions> options = loopback_options(ranks, how);
    for (MessengerOptions& mine : options) {
      int ends[2] = {-1, -1};
      if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
      const pid_t process = fork();
      if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        MessengerOptions own = std::move(mine);
        options.clear();  // nobody listens any more where a rank was that is dead
        live(std::move(own), work, ends[1]);
      }
      close(ends[1]);
      ranks_.push_back({process, Socket(ends[0]), "", std::nullopt});
    }
  }
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;
  ~ForkedRanks() {
    for (const Process& each : ranks_)
      if (!each.end) {
        kill(each.id, SIGKILL);
        waitpid(each.id, nullptr, 0);
      }
  }

  void signal(Rank rank, int number) const {
    kill(ranks_[static_cast<std::size_t>(rank.value())].id, number);
  }
  // Takes note of who has ended. Returns whether all have but `except`.
  bool have_ended(std::optional<Rank> except = std::nullopt) {
    bool all = true;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].end) look_at(ranks_[i]);
      all = all && (ranks_[i].end || (except && at(except->value()) == i));
    }
    return all;
  }
  const std::optional<End>& end_of(Rank rank) const { return ranks_[at(rank.value())].end; }
  int size() const { return static_cast<int>(ranks_.size()); }

 private:
  struct Process {
    pid_t id;
    Socket words;  // what it says before it ends
    std::string text;
    std::optional<End> end;
  };
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  [[noreturn]] static void live(MessengerOptions options, const std::function<void(Messenger&)>& work,
                                int words) {
    std::string text = "-";
    try {
      Messenger messenger(std::move(options));
      work(messenger);
    } catch (const RunFailure& failure) {
      text = std::string("f") + failure.what();
    } catch (const std::exception& error) {
      text = std::string("o") + error.what();
    }
    [[maybe_unused]] const ssize_t written = write(words, text.data(), text.size());
    _exit(0);
  }

  static void look_at(Process& process) {
    int status = 0;
    if (waitpid(process.id, &status, WNOHANG) != process.id) return;
    char buffer[4096];
    for (ssize_t bytes = 0; (bytes = read(process.words.descriptor(), buffer, sizeof buffer)) > 0;)
      process.text.append(buffer, static_cast<std::size_t>(bytes));
    End end;
    end.at_s = monotonic_s();
    end.by_signal = WIFSIGNALED(status);
    const char kind = process.text.empty() ? 'o' : process.text[0];
    if (kind == 'f') end.failure = process.text.substr(1);
    if (kind == 'o')
      end.other = process.text.empty() ? "it ended without a word, status " + std::to_string(status)
                                       : process.text.substr(1);
    process.end = std::move(end);
  }

  std::vector<Process> ranks_;
};

}  // namespace motley::tests
