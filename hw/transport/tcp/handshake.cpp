#include "hw/transport/tcp/handshake.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hw/transport/wire.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// The last byte is the version of all that is said on such a connection.
constexpr std::array<std::uint8_t, 8> kProtocol = {'m', 'o', 't', 'l', 'e', 'y', 0, 4};
constexpr std::size_t kChallengeBytes = kProtocol.size() + sizeof(Nonce);
constexpr std::size_t kIntroductionBytes = 1 + 4 + 4 + 2;
constexpr std::size_t kAnswerBytes = kIntroductionBytes + sizeof(Nonce) + sizeof(Proof);
constexpr double kPatience_s = 5;            // with a stranger
constexpr std::size_t kMostStrangers = 256;  // the oldest one goes when there are more
constexpr double kBetweenTries_s = 0.02;

std::vector<std::byte> challenge(const Nonce& nonce) {
  WireWriter bytes;
  for (const std::uint8_t each : kProtocol) bytes.add(each);
  bytes.add(nonce);
  return bytes.take();
}

void add(WireWriter& bytes, const Introduction& introduction) {
  bytes.add(static_cast<std::uint8_t>(introduction.purpose));
  bytes.add(static_cast<std::uint32_t>(introduction.from.value()));
  bytes.add(static_cast<std::uint32_t>(introduction.to.value()));
  bytes.add(introduction.index);
}

std::optional<Introduction> introduction_in(WireReader& bytes) {
  const auto purpose = bytes.number<std::uint8_t>();
  const auto from = bytes.number<std::uint32_t>(), to = bytes.number<std::uint32_t>();
  const auto index = bytes.number<std::uint16_t>();
  constexpr std::uint32_t kMost = 0x7fffffffU;
  if (!bytes.good() || purpose > static_cast<std::uint8_t>(ConnectionPurpose::data) || from > kMost ||
      to > kMost)
    return std::nullopt;
  return Introduction{static_cast<ConnectionPurpose>(purpose), Rank(static_cast<std::int32_t>(from)),
                      Rank(static_cast<std::int32_t>(to)), index};
}

template <class Bytes>
Bytes copied(WireReader& from) {
  Bytes bytes{};
  const auto span = from.next(bytes.size());
  std::copy(span.begin(), span.end(), bytes.begin());
  return bytes;
}

}  // namespace

// ---- Handshake

Handshake::Handshake(const JobToken& token, bool accepts)
    : token_(token), accepts_(accepts), mine_(random_nonce()) {}

Handshake Handshake::of_acceptor(const JobToken& token) {
  Handshake handshake(token, true);
  handshake.send(challenge(handshake.mine_));
  handshake.expect(kAnswerBytes);
  return handshake;
}

Handshake Handshake::of_dialer(const JobToken& token, const Introduction& introduction) {
  Handshake handshake(token, false);
  handshake.introduction_ = introduction;
  handshake.expect(kChallengeBytes);
  return handshake;
}

void Handshake::expect(std::size_t bytes) {
  incoming_.assign(bytes, std::byte{0});
  came_ = 0;
}

void Handshake::send(std::vector<std::byte> bytes) {
  outgoing_ = std::move(bytes);
  outgoing_left_ = outgoing_;
}

Handshake::State Handshake::fail(std::string why) {
  complaint_ = std::move(why);
  return State::failed;
}

// What each end signs: its side, both challenges and the introduction.
std::vector<std::byte> Handshake::statement(bool of_dialer) const {
  WireWriter bytes;
  bytes.add(std::string_view(of_dialer ? "dialer" : "acceptor"));
  bytes.add(accepts_ ? mine_ : theirs_);
  bytes.add(accepts_ ? theirs_ : mine_);
  add(bytes, introduction_);
  return bytes.take();
}

Handshake::State Handshake::take_challenge() {
  WireReader reader(incoming_);
  const auto protocol = copied<std::array<std::byte, kProtocol.size()>>(reader);
  if (!std::equal(protocol.begin(), protocol.end() - 1, kProtocol.begin(),
                  [](std::byte a, std::uint8_t b) { return std::to_integer<std::uint8_t>(a) == b; }))
    return fail("it is no process of Motley");
  if (std::to_integer<std::uint8_t>(protocol.back()) != kProtocol.back())
    return fail(fmt::format("it speaks version {} of the protocol, this process version {}",
                            std::to_integer<int>(protocol.back()), kProtocol.back()));
  theirs_ = copied<Nonce>(reader);
  WireWriter answer;
  add(answer, introduction_);
  answer.add(mine_);
  answer.add(token_.prove(statement(true)));
  send(answer.take());
  expect(sizeof(Proof));
  return State::goes_on;
}

Handshake::State Handshake::take_answer() {
  WireReader reader(incoming_);
  const auto introduction = introduction_in(reader);
  if (!introduction) return fail("it says nothing that this process understands");
  introduction_ = *introduction;
  theirs_ = copied<Nonce>(reader);
  if (!token_.verify(copied<Proof>(reader), statement(true))) {
    send(std::vector<std::byte>(sizeof(Proof)));
    complaint_ = "it does not have the token of the job";
    said_all_ = true;
    return State::goes_on;
  }
  const Proof proof = token_.prove(statement(false));
  send({proof.begin(), proof.end()});
  incoming_.clear();
  said_all_ = true;
  return State::goes_on;
}

Handshake::State Handshake::take() {
  if (accepts_) return take_answer();
  if (incoming_.size() == kChallengeBytes && outgoing_.empty()) return take_challenge();
  WireReader reader(incoming_);
  const auto proof = copied<Proof>(reader);
  if (proof == Proof{})
    return fail(
        "it refuses this process, which does not have the token of its job (MOTLEY_JOB_TOKEN where ranks do "
        "not have "
        "one user and one /dev/shm)");
  if (!token_.verify(proof, statement(false))) return fail("it does not have the token of the job");
  return State::done;
}

Handshake::State Handshake::advance(const Socket& socket) {
  try {
    for (;;) {
      while (!outgoing_left_.empty()) {
        const std::size_t written = socket.write_some(outgoing_left_);
        if (written == 0) return State::goes_on;
        outgoing_left_ = outgoing_left_.subspan(written);
      }
      if (said_all_) return complaint_.empty() ? State::done : State::failed;
      while (came_ < incoming_.size()) {
        const std::size_t read = socket.read_some(std::span(incoming_).subspan(came_));
        if (read == 0) return State::goes_on;
        came_ += read;
      }
      if (const State state = take(); state != State::goes_on) return state;
    }
  } catch (const SocketFailure& failure) {
    return fail(failure.what());
  }
}

// ---- Door

Door::Door(Socket listener, const JobToken& token, Note note)
    : listener_(std::move(listener)),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      token_(token),
      note_(std::move(note)) {
  MOTLEY_CHECK(events_.open());
  epoll_event event{};
  event.events = EPOLLIN;
  MOTLEY_CHECK(epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, listener_.descriptor(), &event) == 0);
}

void Door::watch(const Stranger& stranger) const {
  epoll_event event{};
  event.events = stranger.handshake.wants_to_write() ? EPOLLOUT : EPOLLIN;
  const int descriptor = stranger.socket.descriptor();
  if (epoll_ctl(events_.descriptor(), EPOLL_CTL_MOD, descriptor, &event) != 0)
    epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, descriptor, &event);
}

void Door::turn_away(const Stranger& stranger, const std::string& why) const {
  if (note_) note_(fmt::format("turned away a connection from {}: {}", stranger.host, why));
}

void Door::accept_all() {
  for (;;) {
    std::optional<Socket> socket = accept_now(listener_);
    if (!socket) return;
    const std::string host = socket->peer_host();
    strangers_.push_back(
        {std::move(*socket), Handshake::of_acceptor(token_), monotonic_s() + kPatience_s, host});
    if (strangers_.size() <= kMostStrangers) continue;
    turn_away(strangers_.front(), "too many connections wait");
    strangers_.pop_front();
  }
}

std::vector<Door::Guest> Door::admit() {
  accept_all();
  std::vector<Guest> guests;
  const double now_s = monotonic_s();
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    const Handshake::State state = stranger->handshake.advance(stranger->socket);
    const bool late = now_s > stranger->until_s;
    if (state == Handshake::State::goes_on && !late) {
      watch(*stranger++);
      continue;
    }
    epoll_ctl(events_.descriptor(), EPOLL_CTL_DEL, stranger->socket.descriptor(), nullptr);
    if (state == Handshake::State::done)
      guests.push_back({stranger->handshake.introduction(), std::move(stranger->socket), stranger->host});
    else
      turn_away(*stranger, state == Handshake::State::failed
                               ? stranger->handshake.complaint()
                               : fmt::format("it did not introduce itself within {} s", kPatience_s));
    stranger = strangers_.erase(stranger);
  }
  return guests;
}

// ---- Dial

Dial::Dial(Address address, const JobToken& token, const Introduction& introduction, const Patience& patience)
    : address_(std::move(address)),
      token_(token),
      introduction_(introduction),
      patience_(patience),
      since_s_(monotonic_s()) {}

bool Dial::wants_to_write() const { return !connected_ || (handshake_ && handshake_->wants_to_write()); }

void Dial::try_again() {
  socket_ = Socket();
  connected_ = false;
  handshake_.reset();
  const double now_s = monotonic_s();
  again_s_ = now_s + kBetweenTries_s;
  if (!refused_since_s_) refused_since_s_ = now_s;
}

Handshake::State Dial::advance() {
  using State = Handshake::State;
  const double now_s = monotonic_s();
  const bool refused = refused_since_s_ && now_s > *refused_since_s_ + patience_.refused_s;
  const bool late = refused || now_s > since_s_ + patience_.silent_s;
  try {
    if (!socket_.open()) {
      if (now_s < again_s_ && !late) return State::goes_on;
      if (!late) socket_ = begin_to_connect(address_);
    }
    if (socket_.open() && !connected_) {
      const std::optional<int> error = connect_error(socket_);
      if (error && *error == 0) {
        connected_ = true;
        refused_since_s_.reset();  // somebody listens there
        handshake_ = Handshake::of_dialer(token_, introduction_);
      } else if (error) {
        complaint_ = fmt::format("{}:{}: {}", address_.host, address_.port, std::strerror(*error));
        try_again();
      }
    }
  } catch (const SocketFailure& failure) {
    complaint_ = failure.what();
    try_again();
  }
  State state = State::goes_on;
  if (connected_) state = handshake_->advance(socket_);
  if (state == State::failed) {
    complaint_ = fmt::format("{}:{}: {}", address_.host, address_.port, handshake_->complaint());
    // Who closes at once may only be about to listen; who lacks the token never will have it.
    if (handshake_->complaint().find("closed") == std::string::npos) return state;
    try_again();
    state = State::goes_on;
  }
  if (state == State::goes_on && late) {
    if (complaint_.empty()) complaint_ = fmt::format("{}:{} does not answer", address_.host, address_.port);
    return State::failed;
  }
  return state;
}

Socket dial(const Address& address, const JobToken& token, const Introduction& introduction,
            double timeout_s) {
  Dial call(address, token, introduction, {timeout_s, timeout_s});
  for (;;) {
    const Handshake::State state = call.advance();
    if (state == Handshake::State::done) return call.take();
    if (state == Handshake::State::failed) throw SocketFailure(SocketEnd::refused, call.complaint());
    pollfd waiting{call.descriptor(), static_cast<short>(call.wants_to_write() ? POLLOUT : POLLIN), 0};
    poll(&waiting, call.descriptor() >= 0 ? 1 : 0, call.descriptor() >= 0 ? 100 : 20);
  }
}

}  // namespace motley
