#include "hw/transport/tcp/transport.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Transfers as large as this go over all connections to a peer.
constexpr std::size_t kSharedBytes = std::size_t{1} << 20U;
// A rank that closes says goodbye on its own connection to this one. It may come later than the end of another.
constexpr double kGoodbye_s = 1;
// A rank at whose address nobody listens for so long is gone.
constexpr double kGone_s = 1;

void set_events(const Socket& poll, int operation, int descriptor, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  MOTLEY_CHECK(epoll_ctl(poll.descriptor(), operation, descriptor, &event) == 0);
}

}  // namespace

void TcpTransport::Counting::left(std::uint64_t number) {
  const auto parts = parts_.find(number);
  if (parts != parts_.end() && --parts->second > 0) return;
  if (parts != parts_.end()) parts_.erase(parts);
  to_.left(number);
}

TcpTransport::TcpTransport(TcpOptions options, TransportEvents& events)
    : options_(std::move(options)),
      events_(events),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      door_(std::move(options_.listener), options_.token,
            [this](const std::string& what) { events_.noted(what); }) {
  MOTLEY_CHECK(poll_.open() && wake_.open());
  set_events(poll_, EPOLL_CTL_ADD, door_.descriptor(), EPOLLIN);
  set_events(poll_, EPOLL_CTL_ADD, wake_.descriptor(), EPOLLIN);
}

TcpTransport::Out& TcpTransport::out_to(Rank peer, std::uint16_t index) {
  const OutKey key{peer, index};
  if (const auto known = out_.find(key); known != out_.end()) return known->second;
  const auto address = options_.addresses.find(peer);
  MOTLEY_CHECK(address != options_.addresses.end());
  const Introduction introduction{ConnectionPurpose::data, options_.rank, peer, index};
  // Every rank listens before others know where. Who does not answer is found out by those who wait for it.
  const Patience patience{.refused_s = kGone_s, .silent_s = std::numeric_limits<double>::infinity()};
  return out_
      .emplace(key, Out{OutStream(peer, Dial(address->second, options_.token, introduction, patience))})
      .first->second;
}

void TcpTransport::tell(Rank peer, const Frame& frame) {
  if (lost_.contains(peer)) return;
  Out& out = out_to(peer, 0);
  out.stream.add(frame);
  if (holds_ == 0) advance(out);
}

void TcpTransport::release() {
  if (--holds_ == 0) send_held();
}

void TcpTransport::send_held() {
  for (auto& [key, out] : out_)
    if (out.stream.has_work()) advance(out);
}

bool TcpTransport::has_told(Rank peer) const {
  const auto out = out_.find({peer, 0});
  return out == out_.end() || !out->second.stream.holds_frames();
}

void TcpTransport::put(Rank peer, Put put) {
  if (lost_.contains(peer)) return;
  const std::size_t bytes = bytes_in(put.pieces);
  const std::size_t count = bytes < kSharedBytes ? 1 : at(options_.streams);
  events_.expect(put.number, count);
  const std::size_t each = (bytes + count - 1) / count;
  for (std::size_t i = 0; i < count; ++i) {
    Put part = put;
    part.pieces = cut(put.pieces, i * each, each);
    part.frame.offset += i * each;
    Out& out = out_to(peer, static_cast<std::uint16_t>(i));
    out.stream.add(std::move(part));
    if (holds_ == 0) advance(out);
  }
}

void TcpTransport::advance(Out& out) {
  out.stream.advance(events_);
  watch(out);
}

// Has epoll wait for what the stream waits for: to write while it has something to write, to read a handshake, or for
// the other end to close, which sends nothing on this connection but why it has failed.
void TcpTransport::watch(Out& out) {
  const int descriptor = out.stream.broken() ? -1 : out.stream.descriptor();
  const bool writes = descriptor >= 0 && out.stream.wants_to_write();
  if (descriptor == out.watched && writes == out.for_writing) return;
  // A descriptor that was closed is gone from epoll by itself.
  if (out.watched >= 0 && out.watched != descriptor)
    epoll_ctl(poll_.descriptor(), EPOLL_CTL_DEL, out.watched, nullptr);
  if (descriptor >= 0) {
    epoll_event event{};
    event.events = writes ? EPOLLOUT : EPOLLIN;
    event.data.fd = descriptor;
    if (epoll_ctl(poll_.descriptor(), EPOLL_CTL_MOD, descriptor, &event) != 0)
      MOTLEY_CHECK(epoll_ctl(poll_.descriptor(), EPOLL_CTL_ADD, descriptor, &event) == 0);
  }
  out.watched = descriptor;
  out.for_writing = writes;
}

void TcpTransport::admit() {
  for (Door::Guest& guest : door_.admit()) {
    const Introduction& introduction = guest.introduction;
    const bool expected = introduction.purpose == ConnectionPurpose::data &&
                          introduction.to == options_.rank && options_.addresses.contains(introduction.from);
    const bool again = std::any_of(in_.begin(), in_.end(), [&](const auto& entry) {
      return entry.second.peer() == introduction.from && entry.second.index() == introduction.index;
    });
    if (!expected || again) {
      events_.noted(fmt::format("turned away a connection from {}: {}", guest.host,
                                again ? fmt::format("rank {} is connected already", introduction.from)
                                      : "it is for somebody else"));
      continue;
    }
    const int descriptor = guest.socket.descriptor();
    set_events(poll_, EPOLL_CTL_ADD, descriptor, EPOLLIN);
    in_.emplace(descriptor, InStream(introduction.from, introduction.index, std::move(guest.socket)));
  }
}

void TcpTransport::end_reading(int descriptor, const std::string& why) {
  const auto ended = in_.find(descriptor);
  const Rank peer = ended->second.peer();
  in_.erase(ended);
  endings_.try_emplace(peer, Ending{why, monotonic_s()});
}

void TcpTransport::read_from(int descriptor) {
  const auto in = in_.find(descriptor);
  if (in == in_.end()) return;
  const Rank peer = in->second.peer();
  if (const auto why = in->second.advance(events_)) end_reading(descriptor, *why);
  // Its last bytes are coming.
  if (const auto ending = endings_.find(peer); ending != endings_.end()) ending->second.at_s = monotonic_s();
}

// Where few speak, to read from them is as quick as to ask which of them has spoken, and has been done then.
bool TcpTransport::reads_few() {
  constexpr std::size_t kFew = 2;
  constexpr unsigned kTimes = 8;  // the door, and who dials, are looked after now and then
  if (ready_count_ != 0 || in_.size() > kFew || ++looks_ % kTimes == 0) return false;
  std::array<int, kFew> descriptors{};
  std::size_t count = 0;
  for (const auto& [descriptor, in] : in_) descriptors[count++] = descriptor;
  for (std::size_t i = 0; i < count; ++i) read_from(descriptors[i]);
  return true;
}

void TcpTransport::progress() {
  if (!reads_few()) look_at_all();
  for (auto& [key, out] : out_)
    if (out.stream.has_work() || !out.stream.is_open()) advance(out);
  look_after_endings();
}

void TcpTransport::look_at_all() {
  int count = std::exchange(ready_count_, 0);
  if (count <= 0) count = epoll_wait(poll_.descriptor(), ready_.data(), static_cast<int>(ready_.size()), 0);
  bool door = false;
  for (int i = 0; i < count; ++i) {
    const int descriptor = ready_[at(i)].data.fd;
    if (descriptor == door_.descriptor()) {
      door = true;
    } else if (descriptor == wake_.descriptor()) {
      std::uint64_t times = 0;
      [[maybe_unused]] const ssize_t bytes = read(descriptor, &times, sizeof times);
    } else if (in_.contains(descriptor)) {
      read_from(descriptor);
    } else {
      for (auto& [key, out] : out_)
        if (out.watched == descriptor && out.stream.is_open()) {
          out.stream.hear(events_);
          advance(out);
        }
    }
  }
  // Strangers that are slow make the door ready for nobody; they are looked after now and then.
  constexpr double kBetween_s = 0.1;
  if (door || recent_s() > admitted_s_ + kBetween_s) {
    admit();
    admitted_s_ = recent_s();
  }
}

// A peer that ends says goodbye first, but on one of several connections, whose last bytes may come after the end of
// another. It is lost when all that it sends on have ended, or when nothing has come for some time after the first.
void TcpTransport::look_after_endings() {
  for (auto& [key, out] : out_) {
    if (!out.stream.broken()) continue;
    out.stream.hear(events_);
    endings_.try_emplace(key.first, Ending{*out.stream.broken(), monotonic_s()});
  }
  for (const auto& [peer, ending] : endings_) {
    if (lost_.contains(peer)) continue;
    const bool speaks = std::any_of(in_.begin(), in_.end(),
                                    [rank = peer](const auto& entry) { return entry.second.peer() == rank; });
    if (speaks && monotonic_s() < ending.at_s + kGoodbye_s) continue;
    lost_.insert(peer);
    events_.lost(peer, ending.why);
  }
}

void TcpTransport::wait(double seconds) {
  // Dials that wait to try again, and strangers, are looked after now and then.
  constexpr double kMost_s = 0.1;
  const int milliseconds = static_cast<int>(std::clamp(seconds, 0.0, kMost_s) * 1000) + 1;
  ready_count_ = epoll_wait(poll_.descriptor(), ready_.data(), static_cast<int>(ready_.size()), milliseconds);
}

void TcpTransport::wake() {
  const std::uint64_t once = 1;
  [[maybe_unused]] const ssize_t bytes = write(wake_.descriptor(), &once, sizeof once);
}

void TcpTransport::wait_also_for(int descriptor) { set_events(poll_, EPOLL_CTL_ADD, descriptor, EPOLLIN); }

void TcpTransport::abandon() {
  for (auto& [key, out] : out_) out.stream.abandon();
  for (auto& [descriptor, in] : in_) in.abandon();
}

void TcpTransport::tell_all(const Frame& frame) {
  for (auto& [key, out] : out_)
    if (key.second == 0 && !lost_.contains(key.first)) {
      out.stream.add(frame);
      advance(out);
    }
}

void TcpTransport::tell_callers(const Frame& abort) {
  for (const auto& [descriptor, in] : in_) in.tell_back(abort);
}

void TcpTransport::flush(double seconds) {
  const double until_s = monotonic_s() + seconds;
  const auto busy = [](const auto& entry) {
    return entry.second.stream.has_work() && !entry.second.stream.broken();
  };
  while (std::any_of(out_.begin(), out_.end(), busy) && monotonic_s() < until_s) {
    for (auto& [key, out] : out_)
      if (out.stream.has_work()) advance(out);
    if (std::any_of(out_.begin(), out_.end(), busy)) wait(0.01);
  }
}

}  // namespace motley
