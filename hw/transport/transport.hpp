// How bytes go from rank to rank. A transfer is a rendezvous: the sender's bytes flow only after the receiver has
// posted, which is what send and recv of a Program mean in every World. Each transport is a folder, and all have the
// same file names. A transport knows nothing about tensors or schedules. Read next: hw/transport/tcp/transport.hpp,
// hw/collective/ring.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

// Transfers of different channels never wait for each other.
enum class Channel : std::uint8_t {
  activation,
  gradient,
  tensor_group,
  data_group,
  embedding_group,
  expert_group,
  gather_group,
  activation_gather,
  gradient_gather,
  context_group,
  tensor_gradient
};
std::string_view name_of(Channel channel);
Channel channel_of(GroupKind kind);

// When a rank was ready for a transfer, in seconds of the run's common clock.
struct Posted {
  double at_s = 0;
  std::optional<Rank> rank;  // none: no rank is known to have been ready
};

// At most one transfer in each direction. Both sides of a transfer give the same tag and the same number of bytes.
struct Exchange {
  Channel channel = Channel::activation;
  std::uint64_t tag = 0;
  std::optional<Rank> to;  // none: sends nothing
  std::span<const std::byte> outgoing = {};
  std::optional<Rank> from;  // none: receives nothing
  std::span<std::byte> incoming = {};
  int lane = 0;  // Link::lane
  // Whether zeros at the end of `outgoing` stay behind: the other side writes them itself, whatever it says here.
  bool keeps_zeros_back = false;
};

// How many bytes there are before the zeros at the end, or up to seven more.
std::size_t bytes_before_zeros(std::span<const std::byte> bytes);

// One direction between two ranks that a Program uses. `lane`: for activations and gradients the sender's chunk, so
// that boundaries of virtual stages never wait for each other; 0 for all others.
struct Link {
  Rank from, to;
  Channel channel = Channel::activation;
  int lane = 0;
  auto operator<=>(const Link&) const = default;
};
std::vector<Link> links_of(const Program& program);  // sorted, without duplicates

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Rank rank() const = 0;
  // Blocks until the outgoing bytes have left their buffer and the incoming bytes have filled theirs. `mine` says when
  // this side was ready. Returns the latest such time known for any rank: peers pass on what they know. Only one thread
  // at a time may use a link. Throws RunFailure, which names the peer, if the peer died, was silent too long, or named
  // another transfer.
  virtual Posted exchange(const Exchange& exchange, Posted mine) = 0;
  // Ends every exchange under way, here and at the peers, to which this rank seems to have died. Any thread may call
  // it.
  virtual void abort() = 0;
};

}  // namespace motley
