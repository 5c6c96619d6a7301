// One message as a Messenger keeps it. Only hw/communicator includes this file.
#pragma once

#include <optional>
#include <utility>

#include "hw/communicator/messenger.hpp"

namespace motley {

class Messenger::Transfer final : public Operation {
 public:
  Transfer(std::uint64_t its_number, Rank its_peer, const MessageKey& its_key, const Call& its_call,
           Posted mine)
      : number(its_number),
        peer(its_peer),
        key(its_key),
        call(its_call),
        since_s(monotonic_s()),
        moved_s(since_s) {
    latest = mine;
  }
  bool is_send() const { return sent.has_value(); }
  // Before anything is written to `into`.
  void open() {
    if (room) into = std::exchange(room, nullptr)();
  }
  void touch() { moved_s = monotonic_s(); }

  const std::uint64_t number;
  const Rank peer;
  const MessageKey key;
  const Call call;
  std::optional<SendOrder> sent;   // of a send
  std::span<std::byte> into = {};  // of a receive; nothing yet while `room` is there
  std::function<std::span<std::byte>()> room = {};
  std::size_t bytes = 0, moving = 0, moved = 0;  // in all; before the zeros that stay behind; so far
  RemoteMemory place = {};                       // of the receiver's buffer, if RDMA may write there
  std::uint64_t other = 0;                       // the receiver's number, once it is known
  std::uint32_t attempt = 0;                     // how often its bytes were begun before
  bool begun = false;                            // some bytes of a receive have come
  bool is_staged = false;            // only copy calls may touch its bytes, which go chunk by chunk
  bool is_staged_for_speed = false;  // any may, but two copies are faster than one
  std::size_t chunked = 0;           // bytes of a staged send that are copied out
  std::optional<Path> chunks_by;     // how those of them went that went last
  // A small message out of such memory, or into it, that was copied when it was posted, or is once it has come; then
  // `lands` is where.
  std::vector<std::byte> copied;
  std::span<std::byte> lands = {};
  bool withdrawn = false;            // the other side was told that it is cancelled
  bool is_eager = false;             // a send whose bytes have gone before its receiver was ready
  const double since_s;              // when it was posted
  double moved_s;                    // when it last moved
  Then then;                         // is called once it is done
  const Operation* owner = nullptr;  // the collective that it is a part of

 protected:
  void cancel(Messenger& messenger) override;
};

}  // namespace motley
