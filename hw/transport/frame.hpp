// What ranks tell each other besides the bytes of tensors. For a transfer from a to b:
//
//   b -> a   ready     key, call, bytes, posted: b's buffer waits, as b's transfer number n
//   a -> b   data      n, offset, length, posted, then the bytes; as often as it takes
//        or  offer     n, offset, where they lie in a's memory: b takes them itself, on the same host; as often, too
//   b -> a   taken     the offer is done;  refused: b cannot read a's memory, so a sends data
//   b -> a   withdraw  n is cancelled;     a -> b   withdrawn: no byte of n will come any more
//
// A small message does not wait for b, and its bytes come with its frame. b says "ready" all the same, so that a knows
// when b was; a matches that as it would any other, but has nothing more to send:
//
//   a -> b   eager     key, call, posted, the bytes; and the last "ready" of b that a has seen: no older one is meant
//   a -> b   recall    a's send is cancelled;  b -> a   recalled: no receive has taken it, and none will
//
// Two ranks that would use RDMA tell each other, for each pair of devices: wire (where this end is), wired (this end
// can receive) and, at any time, unwired (this end is closed, or there is none).
//
// Behind the bytes of each data frame comes one byte more: 1, or 0 where the run has failed and other bytes came in
// their place. abort, goodbye, ask and answer concern the run. Read next: hw/transport/wire.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hw/transport/wire.hpp"
#include "models/base/transfer_path.hpp"
#include "models/program/program.hpp"

namespace motley {

// When a rank was ready for a transfer, in seconds of the run's common clock.
struct Posted {
  double at_s = 0;
  std::optional<Rank> rank;  // none: no rank is known to have been ready
};
// The later of both.
Posted latest_of(const Posted& a, const Posted& b);

// Which message of which operation: both sides of a transfer give the same.
struct MessageKey {
  std::uint64_t context = 0;    // of one communicator, or one kind of message
  std::uint64_t operation = 0;  // the number of the operation in the context, or a tag
  std::uint64_t part = 0;       // the number of the message in the operation
  auto operator<=>(const MessageKey&) const = default;
};

// What a rank calls, so that ranks which call different things are told both.
struct Call {
  enum class Kind : std::uint8_t { message, collective };
  Kind kind = Kind::message;
  std::uint8_t collective = 0, algorithm = 0, element = 0, reduce = 0;  // numbers of their enums
  std::uint32_t root = 0, members = 0;
  std::uint64_t count = 0;  // elements of the payload, or bytes of the message
  bool operator==(const Call&) const = default;
};

enum class FrameKind : std::uint8_t {
  ready,
  data,
  offer,
  taken,
  refused,
  withdraw,
  withdrawn,
  abort,
  goodbye,
  ask,
  answer,
  wire,
  wired,
  unwired,
  eager,
  recall,
  recalled
};

// Bytes in a sender's memory.
struct MemoryPiece {
  std::uint64_t address = 0, bytes = 0;
  bool operator==(const MemoryPiece&) const = default;
};

// By which a process is known to be the one that is meant: a random number at an address of its memory.
struct MemoryMark {
  std::uint64_t process = 0, at = 0, value = 0;
  bool operator==(const MemoryMark&) const = default;
};

// Where bytes lie in a file that a process shares: its descriptor there; 0: nowhere.
struct FilePlace {
  std::uint32_t descriptor = 0;
  std::uint64_t offset = 0;
  bool operator==(const FilePlace&) const = default;
};

// Memory that a peer may write by RDMA: its address there, and a key for each of its devices; no keys: none.
struct RemoteMemory {
  std::uint64_t address = 0;
  std::vector<std::uint32_t> keys;
  bool operator==(const RemoteMemory&) const = default;
};

// One end of a pair of RDMA queues, as a peer needs it. The codes are those of libibverbs.
struct Endpoint {
  std::uint8_t rail = 0;  // devices of one number are wired to each other
  std::uint8_t link = 0, mtu = 0;
  std::uint16_t lid = 0;
  std::uint32_t queue = 0, packet = 0;      // its number, and that of the first packet that it sends
  std::uint32_t slots = 0, slot_bytes = 0;  // what it can receive before it says that there is room again
  std::array<std::uint8_t, 16> gid{};
  bool operator==(const Endpoint&) const = default;
};

// For whom a rank waits, and in which operation.
struct Awaited {
  Rank rank;
  std::uint64_t context = 0, operation = 0;  // as in MessageKey
  auto operator<=>(const Awaited&) const = default;
};

struct Frame {
  FrameKind kind = FrameKind::ready;
  std::uint64_t transfer = 0;  // the receiver's number of it; eager: that of the last "ready", or 0
  MessageKey key;              // ready, eager, recall; ask, answer: of what the asking rank waits for
  Call call;                   // ready, eager
  std::uint64_t bytes = 0;     // ready, eager: in all; data, offer: as many move, and the rest are zeros
  std::uint64_t offset = 0, length = 0;  // data: of what follows; offer: only where it begins
  bool is_written = false;               // data: the bytes are where they go already, and none follow
  std::uint32_t attempt =
      0;  // data: how often the transfer was begun before; what is of an older one is void
  std::uint64_t sender_number = 0;        // offer, taken, refused, eager, recall, recalled: the sender's
  MemoryMark mark;                        // offer: of the sender
  std::vector<MemoryPiece> pieces;        // offer
  FilePlace shared;                       // offer: where its only piece can be read, too
  RemoteMemory place;                     // ready: where the bytes go
  Posted posted;                          // ready, data, offer, eager
  std::vector<std::byte> body;            // eager: at most kEagerMost
  TransferPath path = TransferPath::tcp;  // data: that it has come by; not sent
  std::optional<Rank> rank;               // abort: who is to blame
  std::vector<Awaited> awaited;           // answer: the first kAwaitedMost of those for whom the rank waits
  std::string text;                       // abort, unwired: why; answer: for what
  Endpoint endpoint;                      // wire; of wired and unwired only the rail
  std::uint64_t came = 0;                 // unwired: how many messages with data came over it
};

// The length of the rest (2 bytes), then the rest. decode() reads that rest; nothing: it is no frame.
inline constexpr std::size_t kFrameLengthBytes = 2;
inline constexpr std::size_t kPiecesMost = 64;                          // of one offer
inline constexpr std::size_t kDataBytesMost = std::size_t{512} << 10U;  // behind one data frame
inline constexpr std::size_t kAwaitedMost = 1000;                       // of one answer
inline constexpr std::size_t kRailsMost = 16;
inline constexpr std::size_t kEagerMost = std::size_t{2} << 10U;
std::vector<std::byte> encode(const Frame& frame);
std::optional<Frame> decode(std::span<const std::byte> rest);

}  // namespace motley
