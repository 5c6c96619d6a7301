// A pair of queues (RC) to one peer, over one device. Messages are sent from slots and received into slots, all in one
// piece of registered memory. A message with data takes a credit, and the peer gives credits back, as immediate data of
// empty messages, when half of its slots are free again: so a receiver always has a slot, and RNR retries are switched
// off. Bytes out of registered memory are not copied into a slot, and bytes for registered memory are written there, in
// front of a message that only says so: it has more to say than immediate data could.
// Assumes: a rank talks to hundreds of others at most. Each pair has slots of 2.3 MiB.
// Read next: hw/transport/verbs/transport.hpp.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hw/transport/transport.hpp"
#include "hw/transport/verbs/device.hpp"

namespace motley {

class QueuePairEvents {
 public:
  virtual ~QueuePairEvents() = default;
  virtual void sent(std::uint64_t tag) = 0;  // the peer's device has the message
  virtual void came(const Frame& data, std::span<const std::byte> bytes) = 0;
};

class QueuePair {
 public:
  static constexpr std::size_t kSegment = std::size_t{64} << 10U;   // bytes that a message copies, at most
  static constexpr std::size_t kWritten = std::size_t{256} << 10U;  // bytes that it writes, at most
  static constexpr std::size_t kPiecesOfMessage = 4;                // of registered memory

  // Throws VerbsFailure.
  QueuePair(const VerbsDevice& device, std::uint8_t rail);

  // How the peer reaches it.
  const Endpoint& endpoint() const { return mine_; }
  // It can receive after that. It can send once the peer's end has been connected, too. Throws VerbsFailure.
  void connect(const Endpoint& theirs);
  void let_send() { lets_send_ = true; }
  bool can_send() const { return lets_send_ && !broken_ && credits_ > 0 && !free_slots_.empty(); }
  std::uint32_t credits() const { return credits_; }
  // `keys`: of the pieces' memory, which is registered; none: they are copied. sent() gives the tag back. If the data
  // is written, then from `address` on, where the peer has memory with such a key.
  struct Target {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
  };
  void send(const Frame& data, const Pieces& pieces, const std::vector<std::uint32_t>& keys,
            const std::optional<Target>& target, std::uint64_t tag);
  // Tells what has completed.
  void poll(QueuePairEvents& events);

  // Nothing is sent or received any more.
  void stop(const std::string& why);
  const std::optional<std::string>& broken() const { return broken_; }  // why
  std::uint64_t messages_came() const { return came_; }
  // The tags of messages on their way that are among the first `came` of all: those that the peer says it has.
  std::vector<std::uint64_t> take_arrived(std::uint64_t came);

 private:
  static constexpr std::uint32_t kSlots = 16;       // with data, on their way in each direction
  static constexpr std::uint32_t kCreditSlots = 4;  // at most two messages with credits are ever unread
  static constexpr std::size_t kHeaderBytes = 128;
  static constexpr std::size_t kSlotBytes = kHeaderBytes + kSegment;
  struct Sent {
    std::uint64_t tag = 0;
    std::uint32_t slot = 0;
  };
  std::span<std::byte> slot(std::size_t number) {
    return std::span(memory_).subspan(number * kSlotBytes, kSlotBytes);
  }
  void post_receive(std::uint32_t number);
  ibv_sge piece_of_slots(std::span<const std::byte> bytes) const;
  void post_send(ibv_send_wr& work, std::span<ibv_sge> pieces);
  void give_credits();
  void take(const ibv_wc& completion, QueuePairEvents& events);
  void take_message(const ibv_wc& completion, QueuePairEvents& events);

  const VerbsDevice& device_;
  std::vector<std::byte> memory_;  // slots to receive into, then slots to send from
  // They end in the reverse order.
  VerbsRegion region_;
  VerbsHandle<ibv_cq, ibv_destroy_cq> completions_;
  VerbsHandle<ibv_qp, ibv_destroy_qp> queues_;
  Endpoint mine_;
  bool connected_ = false, lets_send_ = false;
  std::uint32_t credits_ = 0;  // messages that the peer has room for
  std::uint32_t unreturned_ = 0,
                credits_sent_ = 0;  // slots that are free again; messages with credits on their way
  std::vector<std::uint32_t> free_slots_;
  std::deque<Sent> under_way_;              // in their order
  std::uint64_t completed_ = 0, came_ = 0;  // messages with data
  std::optional<std::string> broken_;
};

}  // namespace motley
