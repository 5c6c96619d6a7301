// The connections of a rank to the others of its job that the rendezvous has made: rank 0 has one to every other rank,
// the others have one to rank 0. They carry messages and, from a thread of their own, heartbeats: a process that is
// stopped sends none, and one that computes for long goes on to. The first failure that rank 0 hears of is told to all,
// so that every rank names the one that has failed and not another one that noticed. Read next:
// hw/launch/rendezvous.hpp.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hw/transport/tcp/socket.hpp"
#include "models/program/program.hpp"

namespace motley {

inline constexpr Rank kLeader{0};  // the rank that listens at the rendezvous
// The longest message. A trace of a million events has about 10^8 bytes.
inline constexpr std::uint32_t kMessageBytesMax = 1U << 30U;

struct ConnectionsOptions {
  Rank rank;
  // A rank from which nothing came for so long has failed. 0: there is no thread and there are no heartbeats; all ranks
  // have the same.
  double silence_s = 0;
  double timeout_s = 60;  // without heartbeats: for how long a message may be awaited
  // Called once on the thread, some seconds after a failure, where the owner has not ended by then: it computes.
  std::function<void(const std::string&)> on_overdue = {};
  // What messages call a rank. Without: "rank 2".
  std::function<std::string(Rank)> name = {};
};

class Connections {
 public:
  explicit Connections(ConnectionsOptions options);
  // Says farewell, so that the others know that this rank has not died; or, where an exception ends it, that it failed.
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  void add(Rank rank, Socket socket);
  bool has(Rank rank) const;
  // Both throw RunFailure, which names the rank that has failed. A message may take the limit of silence and a second
  // for each MiB, however its bytes come.
  void send(Rank rank, const std::string& message);
  std::string receive(Rank rank);
  // Waits for at most so many seconds. Returns whether receive() would not wait: a message has come, or none will.
  bool wait_for_message(Rank rank, double seconds);
  // Why no further message will come from the rank: the job has failed, or the rank has ended. Any thread may ask.
  std::optional<std::string> ending(Rank rank) const;
  // Why the job has failed, as every rank tells it: "rank 2 is gone (the connection was closed)". Any thread may ask.
  std::optional<std::string> failure() const;
  // This rank has failed, or has found out that another one has: all others are told.
  void fail(const std::string& what);
  // What ends this rank is known to the others: the destructor tells no failure.
  void leave() { is_leaving_ = true; }
  // Gives all sockets away; for connections without heartbeats.
  std::map<Rank, Socket> take();

 private:
  enum class Kind : std::uint8_t { message, heartbeat, failure, farewell };
  struct Peer {
    Rank rank;
    Socket socket;
    std::mutex writing;             // one frame at a time
    std::vector<std::byte> unsent;  // of a frame that the thread has begun
    bool is_told = false;           // of the failure
    // What is being read: the head, then the body, which grows with what has come.
    std::vector<std::byte> head, body;
    std::size_t came = 0, length = 0;
    double until_s = 0;  // the body is to be complete
    // What follows is guarded by mutex_.
    std::deque<std::string> inbox;
    double silent_s = 0;  // seconds of this process without a byte
    std::string ending;   // why nothing more will come; empty: more may
  };

  void run();
  bool tell_failure();
  void beat(Peer& peer);
  void look_for_silence(double passed_s);
  std::vector<Peer*> peers() const;
  Peer& peer(Rank rank) const;
  double limit_s() const { return options_.silence_s > 0 ? options_.silence_s : options_.timeout_s; }
  void read_from(Peer& peer);
  bool read_frame(Peer& peer);
  void take(Peer& peer, Kind kind, std::string text);
  void set_failure(const std::string& why);
  void end(Peer& peer, const std::string& why);
  void write(Peer& peer, Kind kind, const std::string& text, double limit_s);
  void write_what_goes(Peer& peer);
  bool await_message(Peer& peer, std::unique_lock<std::mutex>& lock, double until_s);
  std::string name_of(Rank rank) const;
  [[noreturn]] void throw_gone(const Peer& peer, const std::string& why);
  [[noreturn]] void throw_failed(const std::string& why) const;

  const ConnectionsOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Rank, std::unique_ptr<Peer>> peers_;
  std::optional<std::string> failure_;
  double failed_at_s_ = 0;
  bool stops_ = false, is_overdue_ = false, is_leaving_ = false;
  Socket wake_;  // an eventfd
  std::thread thread_;
};

}  // namespace motley
