// Fuzz target: bytes come to a rank on a connection, in pieces: each frame that is read can be written, and is read as
// the same again.
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "hw/transport/frame.hpp"
#include "hw/transport/tcp/stream.hpp"
#include "models/base/refusal.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

class Listener final : public TransportEvents {
 public:
  void came(Rank, const Frame& frame) override {
    const std::vector<std::byte> once = encode(frame);
    const auto again = decode(std::span<const std::byte>(once).subspan(kFrameLengthBytes));
    MOTLEY_CHECK(again.has_value());
    MOTLEY_CHECK(encode(*again) == once);
  }
  std::span<std::byte> place_for(Rank, const Frame& data) override {
    return std::span(place_).first(std::min<std::uint64_t>(data.length, data.transfer % place_.size()));
  }
  void landed(Rank, const Frame&) override {}
  void left(std::uint64_t) override {}
  void lost(Rank, const std::string&) override {}
  void noted(const std::string&) override {}

 private:
  std::array<std::byte, 100'000> place_{};
};

}  // namespace

void take(const std::string& input) {
  if (input.size() < 2) return;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(input)).subspan(1);
  static Listener listener;
  if (const auto frame = decode(bytes)) listener.came(Rank(1), *frame);
  int ends[2] = {-1, -1};
  MOTLEY_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  const Socket sender(ends[0]);
  InStream stream(Rank(1), 0, Socket(ends[1]));
  const std::size_t piece = 1 + static_cast<std::uint8_t>(input[0]) * std::size_t{17};
  for (std::size_t begin = 0; begin < bytes.size(); begin += piece) {
    const auto part = bytes.subspan(begin, std::min(piece, bytes.size() - begin));
    MOTLEY_CHECK(sender.write_some(part) == part.size());
    if (stream.advance(listener)) return;
  }
}

}  // namespace motley::tests
