// How bytes go from rank to rank. A transfer is a rendezvous: the receiver says that it is ready, and only then do the
// sender's bytes flow, straight into the receiver's buffer. Each transport is a folder. A transport knows nothing of
// tensors, schedules or groups; what is posted, matched and awaited is the Messenger's. Read next:
// hw/transport/frame.hpp, hw/transport/tcp/transport.hpp, hw/communicator/messenger.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hw/transport/frame.hpp"

namespace motley {

// Several runs of bytes that are sent one after the other.
using Pieces = std::vector<std::span<const std::byte>>;
std::size_t bytes_in(const Pieces& pieces);
// The bytes [offset, offset + length) of all pieces in a row.
Pieces cut(const Pieces& pieces, std::size_t offset, std::size_t length);

// How many bytes there are before the zeros at the end, or up to seven more.
std::size_t bytes_before_zeros(std::span<const std::byte> bytes);

// Bytes for a buffer that a peer has offered with a "ready" frame.
struct Put {
  std::uint64_t number = 0;  // the caller's; left() gives it back
  Frame frame;               // of kind data: the receiver's number of the transfer, and all that moves
  Pieces pieces;             // stay where they are until left()
  RemoteMemory place = {};   // where the receiver lets it be written, if it is
};

// What a transport tells its owner. It calls these from progress(), tell() and put().
class TransportEvents {
 public:
  virtual ~TransportEvents() = default;
  virtual void came(Rank from, const Frame& frame) = 0;
  // Where the `length` bytes that follow a data frame go. Shorter than that: the rest is thrown away.
  virtual std::span<std::byte> place_for(Rank from, const Frame& data) = 0;
  virtual void landed(Rank from, const Frame& data) = 0;  // the bytes that followed it are where they go
  virtual void left(std::uint64_t number) = 0;            // all bytes of a Put have left their buffers
  // The peer will neither send nor receive any more. `why`: "closed the connection".
  virtual void lost(Rank peer, const std::string& why) = 0;
  // Something happened that changes nothing for the run: a stranger was turned away.
  virtual void noted(const std::string& what) = 0;
};

// One thread at a time may call a transport, except where wait() says so.
class Transport {
 public:
  virtual ~Transport() = default;
  // Both put something on its way and never block. Frames to one peer arrive in order; data may overtake them.
  virtual void tell(Rank peer, const Frame& frame) = 0;
  virtual void put(Rank peer, Put put) = 0;
  // What tell() and put() take between these leaves together at the last release(), or before, by send_held() and
  // progress(): small things share a write.
  virtual void hold() = 0;
  virtual void release() = 0;
  virtual void send_held() = 0;
  // Whether all that tell() took for this peer has left.
  virtual bool has_told(Rank peer) const = 0;
  // Does what can be done without blocking.
  virtual void progress() = 0;
  // Blocks until progress() has something to do, wake() was called, or the time has passed. Meanwhile others may call
  // tell(), put() and wake(), but not progress() or flush().
  virtual void wait(double seconds) = 0;
  virtual void wake() = 0;
  // wait() also ends when this descriptor, whose owner reads from it, can be read.
  virtual void wait_also_for(int descriptor) = 0;
  // Forgets every Put and every place for bytes that come: other bytes go in the place of those that are promised
  // already, and the receiver is told so. The run has failed.
  virtual void abandon() = 0;
  // Tells all peers that tell() or put() has reached.
  virtual void tell_all(const Frame& frame) = 0;
  // Tells those that have dialled this rank, on their own connections: it reaches even those who read it only after
  // this process has ended. They hear frames of kind abort there, and nothing else.
  virtual void tell_callers(const Frame& abort) = 0;
  // Sends what tell() took, for as long as that takes but no longer than `seconds`.
  virtual void flush(double seconds) = 0;
};

}  // namespace motley
