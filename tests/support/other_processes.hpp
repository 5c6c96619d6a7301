// The processes of a launch but the first, forked by a test, which is the first one.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <functional>
#include <vector>

#include "hw/world/train.hpp"

namespace motley::tests {

class OtherProcesses {
 public:
  // Each calls `act` at its place, and ends with exit code 0, or 1 if that throws.
  OtherProcesses(std::int32_t rank_count, const std::function<void(const Place&)>& act)
      : rank_count_(rank_count), door_(listen_on({"127.0.0.1", 0})), at_{"127.0.0.1", door_.local_port()} {
    for (std::int32_t i = 1; i < rank_count; ++i) {
      const pid_t process = fork();
      if (process == 0) {
        door_ = Socket();
        int code = 0;
        try {
          act({Rank(i), rank_count, at_, -1});
        } catch (const std::exception&) {
          code = 1;
        }
        _exit(code);
      }
      ids.push_back(process);
    }
  }
  OtherProcesses(const OtherProcesses&) = delete;
  OtherProcesses& operator=(const OtherProcesses&) = delete;
  ~OtherProcesses() {
    for (const pid_t each : ids)
      if (each > 0) {
        kill(each, SIGKILL);
        waitpid(each, nullptr, 0);
      }
  }
  Place first() {
    return {Rank(0), rank_count_, at_, door_.release()};
  }  // of this process; to be called once
  // Waits until the process of a place has ended. Returns its exit code; -1: a signal ended it.
  int exit_code_of(std::int32_t place) {
    int status = 0;
    const pid_t id = std::exchange(ids[static_cast<std::size_t>(place - 1)], 0);
    while (waitpid(id, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::vector<pid_t> ids;  // 0: it has ended

 private:
  const std::int32_t rank_count_;
  Socket door_;
  const Address at_;
};

}  // namespace motley::tests
