// How ranks find each other: all connect to rank 0, which checks that they belong to the job, run the same program
// binary and the same Program and have alike what they must, and tells every rank where all ranks listen. Who does not
// have the token of the job is a stranger: it is turned away, changes nothing and keeps nobody waiting. Who has it is
// of the job: where it does not fit, the job is refused on every rank. The connections stay open for barriers and
// results. Training moves no data over them: hw/communicator does that. Read next: hw/launch/connections.hpp,
// hw/world/train.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hw/launch/agreement.hpp"
#include "hw/launch/clock.hpp"
#include "hw/launch/connections.hpp"
#include "hw/transport/peer_place.hpp"
#include "hw/transport/tcp/handshake.hpp"
#include "models/program/program.hpp"

namespace motley {

struct RendezvousOptions {
  Rank rank;
  std::int32_t rank_count = 1;
  Address at;  // where rank 0 listens
  // A listening descriptor that rank 0 inherited and takes over. -1: rank 0 listens at `at`.
  int listener = -1;
  double timeout_s = 60;
  std::string binary_hash, program_hash;
  JobToken token = JobToken();
  Door::Note on_note = {};  // of strangers that were turned away
  Agreement alike = {};     // what the ranks must have alike, too
  double silence_s = 0;     // ConnectionsOptions
  std::function<void(const std::string&)> on_overdue = {};
};

class Rendezvous {
 public:
  // Blocks until all ranks have come. Throws the same on every rank: Refusal "binary-differs", "run-differs",
  // "program-differs" or "rank-conflict", which names the rank and both values, or RunFailure, which names the ranks
  // that did not come in time.
  explicit Rendezvous(const RendezvousOptions& options);

  const IdTable<Rank, PeerPlace>& places() const { return places_; }
  std::map<Rank, PeerPlace> peers() const;  // the places of all ranks but this

  // Every rank calls these in the same order. They throw RunFailure, which names the rank that is gone.
  void barrier();
  // A barrier that also starts a common clock. Returns the clock's zero on this host's steady clock (monotonic_s): it
  // is exact among processes of one host. Hosts whose clocks were read beforehand differ by what clock() then says.
  // Assumes: processes of one host have one steady clock, so none is in a time namespace of its own.
  double start_clock();
  // Reads the clocks of other hosts again. Returns the clock that start_clock() has started.
  SharedClock clock();
  // Returns `mine` of every rank on rank 0; an empty table on the other ranks.
  IdTable<Rank, std::string> gather(const std::string& mine);
  // Rank 0 sends `message` to all others, and gets it back. Others get what rank 0 sent, and wait for it. They may call
  // this later than rank 0 does, but before any of the above, and once for each message.
  std::string release(const std::string& message);

  // Why the job has failed; none: it has not. Any thread may ask.
  std::optional<std::string> failure() const { return connections_->failure(); }
  // This rank has failed: all others are told.
  void fail(const std::string& what) { connections_->fail(what); }

  // Gives away where this rank listens, for the messages between ranks.
  Socket take_listener() { return std::move(listener_); }
  // Gives away the connections, which have no heartbeats; none of the above may be called afterwards. On rank 0: to
  // each other rank, at its number. On others: one, to rank 0.
  IdTable<Rank, Socket> take_connections();

 private:
  RendezvousOptions options_;
  Socket listener_;
  IdTable<Rank, PeerPlace> places_;

  std::string refused_;  // on rank 0: why, as it is told to all; empty: nothing is wrong
  std::int32_t arrived_ = 1;
  SharedClock clock_;
  std::unique_ptr<Connections> connections_;

  ClockReading read_clocks();
  void tell_clock(Rank rank) const;
  ClockReading ask_clock() const;

  void lead();
  void admit(Door::Guest guest, const std::string& text);
  void tell_all();
  void follow();
  [[noreturn]] void fail_without_missing();
  ConnectionsOptions connections_options() const;
};

std::string hash_of_this_binary();  // 16 hex digits, the hash of /proc/self/exe

}  // namespace motley
