// Fuzz target: a handshake whose other end says anything, in any pieces, or whose bytes somebody changes on their way.
// It is done only where both ends have the token and every byte came as it was sent.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "hw/transport/tcp/handshake.hpp"
#include "models/base/refusal.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

std::pair<Socket, Socket> connection() {
  int ends[2] = {-1, -1};
  MOTLEY_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  return {Socket(ends[0]), Socket(ends[1])};
}

std::size_t read_all_there_is(const Socket& socket, std::span<std::byte> into) {
  try {
    return socket.read_some(into);
  } catch (const SocketFailure&) {
    return 0;
  }
}

void say(const Socket& socket, std::span<const std::byte> bytes) {
  try {
    socket.write_some(bytes);
  } catch (const SocketFailure&) {  // the other end has turned this one away
  }
}

const Introduction kIntroduction{ConnectionPurpose::data, Rank(1), Rank(0), 3};

// One end hears the input alone.
void hear(Handshake handshake, std::string_view input) {
  const auto [mine, theirs] = connection();
  Handshake::State state = handshake.advance(mine);
  while (!input.empty() && state == Handshake::State::goes_on) {
    const std::size_t length = std::min<std::size_t>(static_cast<std::uint8_t>(input[0]) + 1U, input.size());
    say(theirs, std::as_bytes(std::span(input.substr(0, length))));
    input.remove_prefix(length);
    state = handshake.advance(mine);
  }
  MOTLEY_CHECK(state != Handshake::State::done);
  if (state == Handshake::State::failed) MOTLEY_CHECK(!handshake.complaint().empty());
}

// Two ends speak with each other. Each two bytes of the input say how many bytes go on at once, and what is done to
// the last of them.
void meddle(std::string_view input, bool same_token) {
  const JobToken token("a"), other("b");
  Handshake acceptor = Handshake::of_acceptor(token);
  Handshake dialer = Handshake::of_dialer(same_token ? token : other, kIntroduction);
  const auto [accepts, from_dialer] = connection();
  const auto [dials, from_acceptor] = connection();
  auto a = Handshake::State::goes_on, d = a;
  bool changed = false;
  std::array<std::byte, 256> bytes;
  for (int turn = 0; turn < 400; ++turn) {
    if (a == Handshake::State::goes_on) a = acceptor.advance(accepts);
    if (d == Handshake::State::goes_on) d = dialer.advance(dials);
    for (const auto& [from, to] : {std::pair(&from_dialer, &from_acceptor), {&from_acceptor, &from_dialer}}) {
      const std::size_t most = input.empty() ? bytes.size() : static_cast<std::uint8_t>(input[0]);
      const std::size_t read = most == 0 ? 0 : read_all_there_is(*from, std::span(bytes).first(most % 257));
      const auto change = static_cast<std::byte>(input.size() > 1 ? input[1] : '\0');
      if (read > 0 && change != std::byte{0}) {
        bytes[read - 1] ^= change;
        changed = true;
      }
      if (read > 0) say(*to, std::span(bytes).first(read));
      input.remove_prefix(std::min<std::size_t>(2, input.size()));
    }
  }
  const bool clean = !changed && same_token;
  MOTLEY_CHECK(clean == (d == Handshake::State::done));
  if (clean) MOTLEY_CHECK(a == Handshake::State::done && acceptor.introduction() == kIntroduction);
  if (!same_token) MOTLEY_CHECK(a != Handshake::State::done);
}

}  // namespace

void take(const std::string& input) {
  if (input.empty()) return;
  const std::string_view rest = std::string_view(input).substr(1);
  switch (static_cast<std::uint8_t>(input[0]) % 4) {
    case 0:
      return hear(Handshake::of_acceptor(JobToken("a")), rest);
    case 1:
      return hear(Handshake::of_dialer(JobToken("a"), kIntroduction), rest);
    default:
      return meddle(rest, static_cast<std::uint8_t>(input[0]) % 4 == 2);
  }
}

}  // namespace motley::tests
