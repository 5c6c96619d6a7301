// A process that waits for the end of a launcher, and kills what its ranks have started if the launcher could not do so
// itself because it was killed. The kernel kills the ranks then, but not what they have started. Read next:
// hw/launch/launch.hpp.
#pragma once

#include <sys/types.h>

#include "hw/transport/tcp/socket.hpp"

namespace motley {

class Keeper {
 public:
  // Forks: the caller has one thread. The process is no child of this one, so that nobody waits for it by chance.
  Keeper();
  ~Keeper();  // ends it
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  void watch(pid_t group) const { tell(group); }    // a process group that is to end with this process
  void forget(pid_t group) const { tell(-group); }  // it has ended

 private:
  void tell(pid_t group) const;
  Socket line_;
};

}  // namespace motley
