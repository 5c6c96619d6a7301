#include "hw/calibration/busy_share.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <vector>

#include "hw/transport/tcp/socket.hpp"

namespace motley {

double least_share_on_processor(std::int64_t processes, double seconds) {
  std::vector<pid_t> started;
  for (std::int64_t i = 0; i < processes; ++i) {
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      volatile double sum = 0;
      const double begin_s = monotonic_s();
      rusage used{};
      while (monotonic_s() - begin_s < seconds)
        for (int k = 0; k < 1000; ++k) sum = sum + k;
      getrusage(RUSAGE_SELF, &used);
      const double busy_s = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                            1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
      constexpr double kMost = 100;
      _exit(static_cast<int>(std::clamp(kMost * busy_s / (monotonic_s() - begin_s), 0.0, kMost)));
    }
    if (process > 0) started.push_back(process);
  }
  double least = 1;
  for (const pid_t process : started) {
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    least = std::min(least, WIFEXITED(status) ? WEXITSTATUS(status) / 100.0 : 0);
  }
  return least;
}

}  // namespace motley
