#include "hw/launch/keeper.hpp"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <set>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// It holds nothing open that others wait for the end of.
void close_all_but(int kept) {
  close_range(0, static_cast<unsigned>(kept) - 1, 0);
  close_range(static_cast<unsigned>(kept) + 1, UINT_MAX, 0);
}

// Until the launcher ends, however it does.
[[noreturn]] void keep(int line) {
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(each, SIG_IGN);
  prctl(PR_SET_NAME, "motley-keeper");
  std::set<pid_t> groups;
  for (;;) {
    pid_t group = 0;
    const ssize_t bytes = recv(line, &group, sizeof group, 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes != sizeof group) break;
    if (group > 0)
      groups.insert(group);
    else
      groups.erase(-group);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

Keeper::Keeper() {
  int ends[2];
  MOTLEY_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const Socket there(ends[1]);
  line_ = Socket(ends[0]);
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    close_all_but(there.descriptor());
    if (chdir("/") != 0) _exit(0);
    keep(there.descriptor());
  }
  MOTLEY_CHECK(child > 0);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Keeper::~Keeper() {
  shutdown(line_.descriptor(), SHUT_WR);
  std::byte none{};
  while (recv(line_.descriptor(), &none, sizeof none, 0) < 0 && errno == EINTR) {
  }
}

// Where it has been killed, the kernel still kills the ranks.
void Keeper::tell(pid_t group) const {
  [[maybe_unused]] const ssize_t bytes = send(line_.descriptor(), &group, sizeof group, MSG_NOSIGNAL);
}

}  // namespace motley
