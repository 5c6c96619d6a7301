// How ranks find each other: all connect to rank 0, which checks that they run the same program binary and the same
// Program and tells everybody where everybody listens. The connections stay, as a slow side channel for barriers and
// results. It carries no training data: that is hw/transport. Read next: hw/train.hpp.
#pragma once

#include <string>
#include <vector>

#include "hw/transport/tcp/socket.hpp"
#include "models/program.hpp"

namespace motley {

struct RendezvousOptions {
  Rank rank = 0, rank_count = 1;
  Address at;         // where rank 0 listens
  int listener = -1;  // rank 0: an inherited listening descriptor instead of `at`; taken over
  double timeout_s = 60;
  std::string binary_hash, program_hash;
};

class Rendezvous {
 public:
  // Blocks until all have come. Throws, on every rank alike, Refusal "binary-differs", "program-differs" or
  // "rank-conflict", naming the rank and both values; RunFailure naming who did not come in time.
  explicit Rendezvous(const RendezvousOptions& options);

  const Socket& listener() const { return listener_; }  // for the transport
  const std::vector<Address>& addresses() const { return addresses_; }

  // Every rank calls these alike. RunFailure names the rank that is gone.
  void barrier();
  // A barrier that also starts a common clock: returns its zero on this host's steady clock (monotonic_s). Exact among
  // processes of one host. Assumes: of other hosts, that they leave the barrier together, which is right to some
  // round trips.
  double start_clock();
  std::vector<std::string> gather(const std::string& mine);  // rank 0: by rank; others: empty

 private:
  RendezvousOptions options_;
  Socket listener_;
  std::vector<Socket> members_;  // rank 0: by rank, [0] closed; others: [0] is rank 0
  std::vector<Address> addresses_;

  std::string release(const std::string& message);  // after a gather: rank 0's message, to all

  void lead();
  void follow();
  std::string receive(const Socket& socket, Rank rank) const;
  void send(const Socket& socket, Rank rank, const std::string& message) const;
};

std::string hash_of_this_binary();  // 16 hex digits over /proc/self/exe

}  // namespace motley
