// Messages between the ranks of a run: posted, tested, awaited and cancelled, any number of them at once and on any
// number of threads. A thread of its own is not needed: whoever waits or tests moves the messages of all. The first
// failure ends every operation here and, with the name of the rank to blame, at all others. Read next:
// hw/communicator/communicator.hpp for collectives, hw/transport/transport.hpp for how bytes move.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hw/communicator/scratch.hpp"
#include "hw/communicator/staging.hpp"
#include "hw/transport/peer_place.hpp"
#include "hw/transport/shm/peer_memory.hpp"
#include "hw/transport/token.hpp"
#include "hw/transport/transport.hpp"
#include "hw/transport/verbs/transport.hpp"
#include "models/base/transfer_path.hpp"

namespace motley {

using Path = TransferPath;

class Messenger;
struct CollectiveOrder;

// What was posted. Only a Messenger looks into it.
class Operation {
 public:
  virtual ~Operation() = default;

 protected:
  friend class Messenger;
  friend class CollectivePerformer;
  enum class State : std::uint8_t { pending, done, failed, cancelled };
  State state = State::pending;
  int waiters = 0;  // threads that wait for it
  Posted latest;
  PathSet paths;
  virtual void cancel(Messenger&) {}
};
using Request = std::shared_ptr<Operation>;

struct SendOrder {
  Rank to;
  MessageKey key;
  Call call;
  Pieces pieces;                  // stay where they are until the request is done
  bool keeps_zeros_back = false;  // whether zeros at the end stay behind: the other side writes them itself
  Posted mine;                    // when this side was ready
};

struct ReceiveOrder {
  Rank from;
  MessageKey key;
  Call call;
  std::span<std::byte> into;
  Posted mine;
  // Instead of `into`, so many bytes, and who gives them memory of the host. It is called once they come: what was used
  // just before is still in a cache.
  std::size_t bytes = 0;
  std::function<std::span<std::byte>()> room = {};
};

struct MessengerOptions {
  Rank rank;
  Socket listener;
  std::map<Rank, PeerPlace> peers;  // of all ranks but this
  JobToken token = JobToken();
  double timeout_s = 300;    // an operation that does not move for this time ends the run
  double reason_s = 0.3;     // within which one who ended a rank says why, where that rank is gone
  bool reads_memory = true;  // whether large messages go from memory to memory on one host
  // Whether they go through a file that both sides map, in two copies; nothing: if that is faster on this host.
  std::optional<bool> copies_twice = {};
  int streams = 1;              // TCP connections to a peer that carry data
  double spin_s = 20e-6;        // how long a thread that waits looks again and again before it sleeps
  double long_spin_s = 200e-6;  // the same where nobody else wants its processor
  bool uses_rdma = true;        // whether large messages go by RDMA where both sides have a device
  std::vector<std::string> rdma_devices = {};  // those that are used, in this order; empty: all that can be
  std::size_t rdma_bytes = std::size_t{4} << 10U;  // smaller messages go over TCP
  // Called for each message when its bytes begin to flow, again if they begin anew on another path.
  std::function<void(const SendOrder&, Path)> on_send = {};
  // Asked now and then while operations wait: a text ends them all, and says why.
  std::function<std::optional<std::string>()> gives_up = {};
  // Called when something happened that changes nothing for the run.
  std::function<void(const std::string&)> on_note = {};
};

class Messenger final : private TransportEvents, private VerbsEvents {
 public:
  explicit Messenger(MessengerOptions options);
  // Says goodbye to those that it has talked with. Operations under way end as failed.
  ~Messenger() override;
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // What is posted while one of these lives leaves when the last of them ends: a message and what is ready for the
  // answer share a write. It lives for a moment; whoever waits meanwhile may let what is held leave.
  class Together {
   public:
    explicit Together(Messenger& messenger);
    ~Together();
    Together(const Together&) = delete;
    Together& operator=(const Together&) = delete;

   private:
    Messenger& messenger_;
  };

  Rank rank() const { return options_.rank; }
  Request post(SendOrder order);
  Request post(ReceiveOrder order);
  // A collective cannot be cancelled: the others would wait for it.
  Request post(CollectiveOrder order);
  // Whether it is done, and its buffers may be used again. Throws as wait() does.
  bool test(const Request& request);
  // Blocks until it is done. Returns when the last side was ready, as far as any rank knows. Throws RunFailure, which
  // names the rank to blame.
  Posted wait(const Request& request);
  PathSet paths_of(const Request& request) const;  // that its bytes have taken
  // An operation whose bytes flow already is completed. wait() returns for one that was cancelled, too.
  void cancel(const Request& request);
  // Ends all operations, here and at the peers, to which this rank seems to have died. Any thread may call it.
  void abort(const std::string& why);
  // Lets large messages go by this path, or by TCP where a peer has no such path. All ranks call it between the same
  // operations.
  void allow(Path path);
  // What is sent out of this memory, or received into it, by RDMA is not copied on its way until the handle ends, which
  // is before the Messenger does. Worth it for memory that many messages use: to register takes long. Without RDMA it
  // does nothing.
  std::shared_ptr<void> register_memory(std::span<std::byte> bytes);
  // Orders may have bytes of this memory from then on, whatever its kind is, until the handle ends, which is before the
  // memory and the Messenger do. Where only copy calls may touch it, its bytes go through buffers of the host, chunk by
  // chunk, by the same paths. For other memory it does the same as above, too.
  std::shared_ptr<void> register_memory(DeviceMemory& memory);
  MemoryKind kind_of_memory(const std::byte* address) const;
  // Copies as many bytes between memory of any two kinds.
  void copy(std::span<std::byte> into, std::span<const std::byte> from) const;
  // Buffers of the host that bytes of other memory are in now, on their way.
  std::size_t staging_buffers() const;
  // How a message of so many bytes goes to a rank, as far as is known now.
  Path path_to(Rank peer, std::size_t bytes) const;
  // Why this rank takes nothing out of the memory of another; empty: it can, or nobody has tried.
  std::string why_not_memory(Rank peer) const;

 private:
  friend class CollectivePerformer;
  class Transfer;
  using Then = std::function<void()>;
  using Key = std::pair<Rank, MessageKey>;

  // These expect the mutex to be held.
  std::shared_ptr<Transfer> post_send(SendOrder order, Then then);
  std::shared_ptr<Transfer> post_receive(ReceiveOrder order, Then then);
  void begin(const std::shared_ptr<Transfer>& send, const Frame& ready);
  void put(Transfer& send);
  static Frame data_of(const Transfer& send);
  Frame offer_of(const Transfer& send) const;
  std::optional<Path> choose_path(const Transfer& send);
  // How bytes go that only copy calls may touch: hw/communicator/staged.cpp.
  void stage(Transfer& transfer);
  void put_chunks(Transfer& send);
  void send_chunk(Transfer& send, std::uint64_t number, Path path);
  void use_buffers_of(Rank peer);
  std::optional<StagedChunks::Chunk> take_chunk(std::uint64_t number);
  void chunk_left(std::uint64_t number);
  void chunk_came_back(std::uint64_t number);
  std::span<std::byte> landing_for(const Transfer& receive, const Frame& data);
  void take_landing(const Transfer& receive, const Frame& data);
  bool read_offered(PeerMemory& memory, const Frame& offer, const Transfer& receive,
                    std::span<std::byte> into);
  void complete(Operation& operation, Operation::State state = Operation::State::done);
  void run_later();  // what waits for operations that are done, and what peers offer
  void end(std::shared_ptr<Transfer> transfer, Operation::State state = Operation::State::done);
  void track(Operation& operation) { pending_.insert(&operation); }
  // Returns whether it was among those that wait.
  static bool drop(std::map<Key, std::deque<std::uint64_t>>& waiting, const Transfer& transfer);
  void forget_transfers();
  void fail(Rank culprit, const std::string& why, bool tells = true);
  void check(const Call& mine, const Frame& ready, Rank peer);
  void check_ready_calls(const MessageKey& key, const Call& mine);
  void take_offer(Rank from, const Frame& offer);
  void withdraw_ready(Rank from, const Frame& frame);
  void send_eagerly(Transfer& send);
  void end_eager();
  void take_eager(Rank from, const Frame& eager);
  void accept(const std::shared_ptr<Transfer>& receive, const Frame& eager);
  bool accept_early(const std::shared_ptr<Transfer>& receive);
  void recall(Rank from, const Frame& frame);
  bool is_near(const PeerPlace& place) const;
  bool offers_memory(Rank peer, std::size_t bytes) const;
  bool copies_twice() const;
  void open_rdma();
  void wire_up(const Transfer& receive, Frame& ready);
  void wiring_came(Rank from, const Frame& frame);
  PeerMemory* memory_of(Rank peer, const MemoryMark& mark);
  void wait_for_reason(Rank gone);
  void check_deadlines();
  void ask(const Awaited& whom, std::optional<std::size_t> waiter);
  void answered(Rank from, const Frame& answer);
  void conclude();
  Frame answer_to(const Frame& ask) const;
  const Transfer* longest_wait() const;
  std::vector<const Transfer*> awaited_in(const MessageKey& key) const;
  void blame(std::size_t asked, const std::string& why);
  std::string waits_for(const Transfer& transfer) const;
  void progress();
  void spin(std::unique_lock<std::mutex>& lock, const Operation& operation);
  void throw_if_failed(const Request& request) const;
  // Tells threads that wait about what has completed.
  void announce(bool by_driver);

  void came(Rank from, const Frame& frame) override;
  std::span<std::byte> place_for(Rank from, const Frame& data) override;
  void landed(Rank from, const Frame& data) override;
  void left(std::uint64_t number) override;
  void lost(Rank peer, const std::string& why) override;
  void noted(const std::string& what) override;
  void tells(Rank peer, const Frame& frame) override { transport_->tell(peer, frame); }
  void reach_changed(Rank peer) override;
  void gave_back(std::uint64_t number) override;

  // Who is asked when an operation has waited too long: its peer, then all for whom those wait who were asked. One
  // who has begun the operation names those for whom he waits in it; another those for whom his threads wait.
  struct Inquiry {
    struct Asked {
      Awaited whom;
      std::optional<std::size_t> waiter;  // who waits for it, among those that are asked; none: this rank
      double until_s = 0;
      std::shared_ptr<const Frame> answer = {};
    };
    std::uint64_t number = 0;  // of the transfer
    double moved_s = 0;        // when it last moved
    std::string waits;         // what this rank waits for
    std::vector<Asked> asked;
  };

  struct EagerCount {
    std::uint64_t seen = 0;     // the last "ready" of this peer
    std::size_t unmatched = 0;  // eager sends to it without a "ready"
  };

  MessengerOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool driving_ = false;    // a thread moves messages for all
  bool completed_ = false;  // something completed since the last announce()
  std::deque<Then>
      later_;  // not called where they are found, so that a long chain of them needs no deep stack
  std::optional<std::string> failure_;
  std::set<Operation*> pending_;
  std::map<std::uint64_t, std::shared_ptr<Transfer>> sends_, receives_;  // by number
  std::map<Key, std::deque<std::uint64_t>> waiting_sends_;
  std::map<Rank, std::vector<std::uint64_t>> unwired_sends_;  // that wait until it is known how they go
  std::map<Key, std::deque<Frame>> readies_;                  // of peers whose sends are not posted here
  std::map<Key, std::deque<std::uint64_t>> small_receives_;   // that an eager message may fill
  std::map<Key, std::deque<Frame>> early_;                    // eager messages whose receives are not posted
  std::map<Rank, EagerCount> eager_;
  std::vector<std::shared_ptr<Transfer>>
      leaving_;  // eager messages, but that what is told of them has not left
  std::map<std::pair<std::uint64_t, std::uint64_t>, Call>
      calls_;              // collectives under way, by context and operation
  std::set<Rank> spoken_;  // those that this rank has talked with
  std::set<Rank> goodbyes_;
  std::map<Rank, std::string> lost_;
  // Those that have offered bytes, by their marks; nothing: it cannot be read.
  std::map<Rank, std::pair<MemoryMark, std::optional<PeerMemory>>> memories_;
  std::map<Rank, std::string> unreadable_;  // why their memory cannot be read
  const std::string domain_;
  // What peers find here who read this rank's memory; 0: what was offered is no longer there. Atomic, so that every
  // write of it is done.
  std::atomic<std::uint64_t> mark_value_ = 0;
  std::set<Rank> cannot_read_;  // those that cannot read this rank's memory
  std::optional<Inquiry> inquiry_;
  double checked_s_ = 0, processor_busy_until_s_ = 0;
  std::optional<std::pair<Rank, double>>
      gone_;  // who ends the run by being gone, unless a reason comes by then
  std::uint64_t next_number_ = 1;
  MemoryTable memory_;
  ScratchPool scratch_;  // of collectives
  StagedChunks staged_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<VerbsTransport> verbs_;  // nothing: this rank uses no RDMA
};

// "all_reduce (ring, sum) of 1024 fp32 among 4"
std::string describe(const Call& call);

}  // namespace motley
