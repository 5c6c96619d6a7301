#include "hw/transport/tcp/transport.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// The form of both control messages, "ready" and "begin".
// Assumes: all ranks have the same byte order; the rendezvous compares their binaries.
struct Control {
  std::uint64_t tag = 0, bytes = 0;
  double posted_s = 0;
  std::int64_t posted_rank = -1;  // Posted::rank; -1: none
  std::uint64_t moved = 0;        // "begin": as many bytes follow; the rest of them are zero
};
struct Hello {  // the first bytes on a connection
  std::uint32_t magic = 0x4d4f544c;
  std::int32_t from = 0, to = 0;
  std::uint32_t channel = 0;
  std::int32_t lane = 0;
};

Control control_of(std::uint64_t tag, std::size_t bytes, const Posted& posted) {
  return {tag, bytes, posted.at_s, posted.rank ? posted.rank->value() : -1, bytes};
}

Posted posted_of(const Control& control) {
  if (control.posted_rank < 0) return {control.posted_s, std::nullopt};
  return {control.posted_s, Rank(control.posted_rank)};
}

class TcpTransport : public Transport {
 public:
  TcpTransport(Rank rank, double timeout_s) : rank_(rank), timeout_s_(timeout_s) {}
  Rank rank() const override { return rank_; }
  Posted exchange(const Exchange& exchange, Posted mine) override;
  void abort() override;
  void add(const Link& link, Socket socket) { sockets_.emplace(link, std::move(socket)); }

 private:
  friend class Transfer;
  const Rank rank_;
  const double timeout_s_;
  std::map<Link, Socket> sockets_;
  std::atomic<bool> aborted_{false};

  const Socket& socket_of(const Link& link) const {
    const auto entry = sockets_.find(link);
    MOTLEY_CHECK(entry != sockets_.end());
    return entry->second;
  }
};

// One exchange under way: a state machine for each direction, both driven by one poll.
class Transfer {
 public:
  Transfer(TcpTransport& transport, const Exchange& exchange, Posted mine)
      : transport_(transport), exchange_(exchange), latest_(mine) {
    if (exchange.to) {
      out_ = &transport.socket_of({transport.rank_, *exchange.to, exchange.channel, exchange.lane});
      out_state_ = Out::await_ready;
      out_left_ = {};
      ready_in_left_ = writable_bytes_of_value(ready_in_);
    }
    if (exchange.from) {
      in_ = &transport.socket_of({*exchange.from, transport.rank_, exchange.channel, exchange.lane});
      in_state_ = In::send_ready;
      ready_out_ = control_of(exchange.tag, exchange.incoming.size(), mine);
      ready_out_left_ = bytes_of_value(ready_out_);
      begin_in_left_ = writable_bytes_of_value(begin_in_);
    }
  }

  Posted run() {
    double progress_s = monotonic_s();
    while (advance()) {
      if (moved_) progress_s = monotonic_s();
      wait(progress_s);
    }
    return latest_;
  }

 private:
  enum class Out { await_ready, send_begin, data, done };
  enum class In { send_ready, await_begin, data, done };
  TcpTransport& transport_;
  const Exchange& exchange_;
  Posted latest_;
  const Socket* out_ = nullptr;
  const Socket* in_ = nullptr;
  Out out_state_ = Out::done;
  In in_state_ = In::done;
  Control ready_out_, begin_in_;  // the incoming transfer: "ready" sent, "begin" received
  Control ready_in_, begin_out_;  // the outgoing transfer: "ready" received, "begin" sent
  std::span<const std::byte> ready_out_left_, out_left_;
  std::span<std::byte> begin_in_left_, ready_in_left_, in_left_;
  bool moved_ = false;

  // Checks that the peer means the same transfer, and keeps the later of both times.
  void learn(const Control& control, Rank peer, std::size_t bytes) {
    if (control.tag != exchange_.tag || control.bytes != bytes)
      throw RunFailure(
          fmt::format("rank {}: rank {} spoke of transfer {:x} of {} bytes on channel {}, not of "
                      "{:x} of {} bytes",
                      transport_.rank_, peer, control.tag, control.bytes, name_of(exchange_.channel),
                      exchange_.tag, bytes));
    if (control.posted_s > latest_.at_s) latest_ = posted_of(control);
  }

  template <typename Span, typename Move>
  bool move_some(Span& left, Move&& some) {
    while (!left.empty()) {
      const std::size_t count = some(left);
      if (count == 0) return false;
      moved_ = true;
      left = left.subspan(count);
    }
    return true;
  }

  void advance_out() {
    const auto read = [&](std::span<std::byte> into) { return out_->read_some(into); };
    const auto write = [&](std::span<const std::byte> from) { return out_->write_some(from); };
    if (out_state_ == Out::await_ready && move_some(ready_in_left_, read)) {
      learn(ready_in_, exchange_.to.value(), exchange_.outgoing.size());
      begin_out_ = control_of(exchange_.tag, exchange_.outgoing.size(), latest_);
      if (exchange_.keeps_zeros_back) begin_out_.moved = bytes_before_zeros(exchange_.outgoing);
      out_left_ = bytes_of_value(begin_out_);
      out_state_ = Out::send_begin;
    }
    if (out_state_ == Out::send_begin && move_some(out_left_, write)) {
      out_left_ = exchange_.outgoing.first(begin_out_.moved);
      out_state_ = Out::data;
    }
    if (out_state_ == Out::data && move_some(out_left_, write)) out_state_ = Out::done;
  }

  void advance_in() {
    const auto read = [&](std::span<std::byte> into) { return in_->read_some(into); };
    const auto write = [&](std::span<const std::byte> from) { return in_->write_some(from); };
    if (in_state_ == In::send_ready && move_some(ready_out_left_, write)) in_state_ = In::await_begin;
    if (in_state_ == In::await_begin && move_some(begin_in_left_, read)) {
      learn(begin_in_, exchange_.from.value(), exchange_.incoming.size());
      const std::size_t moved = std::min<std::uint64_t>(begin_in_.moved, exchange_.incoming.size());
      const auto zeros = exchange_.incoming.subspan(moved);
      std::fill(zeros.begin(), zeros.end(), std::byte{0});
      in_left_ = exchange_.incoming.first(moved);
      in_state_ = In::data;
    }
    if (in_state_ == In::data && move_some(in_left_, read)) in_state_ = In::done;
  }

  // Moves what can be moved without waiting. Returns false when both directions are done.
  bool advance() {
    moved_ = false;
    std::optional<Rank> peer = exchange_.from;
    try {
      if (in_state_ != In::done) advance_in();
      peer = exchange_.to;
      if (out_state_ != Out::done) advance_out();
    } catch (const SocketFailure& failure) {
      throw_failure(peer.value(), fmt::format("is gone ({})", failure.what()));
    }
    return in_state_ != In::done || out_state_ != Out::done;
  }

  [[noreturn]] void throw_failure(Rank peer, const std::string& what) const {
    if (transport_.aborted_) throw RunFailure(fmt::format("rank {}: stopped", transport_.rank_));
    throw RunFailure(fmt::format("rank {}: rank {} {}, channel {}", transport_.rank_, peer, what,
                                 name_of(exchange_.channel)));
  }

  void wait(double progress_s) const {
    pollfd waiting[2];
    nfds_t count = 0;
    if (out_state_ != Out::done)
      waiting[count++] = {out_->descriptor(),
                          static_cast<short>(out_state_ == Out::await_ready ? POLLIN : POLLOUT), 0};
    if (in_state_ != In::done)
      waiting[count++] = {in_->descriptor(),
                          static_cast<short>(in_state_ == In::send_ready ? POLLOUT : POLLIN), 0};
    const double left_s = progress_s + transport_.timeout_s_ - monotonic_s();
    const int timeout_ms = static_cast<int>(std::clamp(left_s, 0.0, 1000.0) * 1000.0) + 1;
    const int ready = poll(waiting, count, timeout_ms);
    MOTLEY_CHECK(ready >= 0 || errno == EINTR);
    if (ready == 0 && monotonic_s() > progress_s + transport_.timeout_s_)
      throw_failure((in_state_ != In::done ? exchange_.from : exchange_.to).value(),
                    fmt::format("was silent for {} s", transport_.timeout_s_));
  }
};

Posted TcpTransport::exchange(const Exchange& exchange, Posted mine) {
  if (aborted_) throw RunFailure(fmt::format("rank {}: stopped", rank_));
  return Transfer(*this, exchange, mine).run();
}

void TcpTransport::abort() {
  aborted_ = true;
  for (const auto& [link, socket] : sockets_) socket.shut_down();
}

// Tries, in short pieces of the time that a peer has, as long as somebody asks for the result.
template <class Try>
Socket connected(const TcpOptions& options, Try&& attempt) {
  if (options.asker == nullptr) return attempt(options.timeout_s);
  constexpr double kPiece_s = 0.25;
  for (const double until_s = monotonic_s() + options.timeout_s;;) try {
      return attempt(std::min(kPiece_s, options.timeout_s));
    } catch (const SocketFailure& failure) {
      if (options.asker->is_ended()) throw SocketFailure(SocketEnd::closed, "nobody asks for it any more");
      if (monotonic_s() >= until_s)
        throw SocketFailure(SocketEnd::timed_out,
                            fmt::format("nothing for {} s: {}", options.timeout_s, failure.what()));
    }
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const Socket& listener, const TcpOptions& options) {
  auto transport = std::make_unique<TcpTransport>(options.rank, options.timeout_s);
  std::size_t expected = 0;
  for (const Link& link : options.links) {
    if (link.to == options.rank) ++expected;
    if (link.from != options.rank) continue;
    try {
      // The peer's backlog takes the connection and the hello before the peer accepts, so no rank waits for another
      // here.
      Socket connection = connected(
          options, [&](double timeout_s) { return connect_to(options.addresses.get(link.to), timeout_s); });
      Hello hello;
      hello.from = link.from.value();
      hello.to = link.to.value();
      hello.channel = static_cast<std::uint32_t>(link.channel);
      hello.lane = link.lane;
      connection.write_all(bytes_of_value(hello), options.timeout_s);
      transport->add(link, std::move(connection));
    } catch (const SocketFailure& failure) {
      throw RunFailure(
          fmt::format("rank {}: cannot connect to rank {}: {}", options.rank, link.to, failure.what()));
    }
  }
  while (expected > 0) {
    try {
      Socket connection =
          connected(options, [&](double timeout_s) { return accept_from(listener, timeout_s); });
      Hello hello;
      hello.magic = 0;
      connection.read_all(writable_bytes_of_value(hello), options.timeout_s);
      const Link link{Rank(hello.from), Rank(hello.to), static_cast<Channel>(hello.channel), hello.lane};
      if (hello.magic != Hello{}.magic || link.to != options.rank ||
          std::find(options.links.begin(), options.links.end(), link) == options.links.end())
        continue;  // not a link of this job
      transport->add(link, std::move(connection));
      --expected;
    } catch (const SocketFailure& failure) {
      throw RunFailure(
          fmt::format("rank {}: {} peers did not connect: {}", options.rank, expected, failure.what()));
    }
  }
  return transport;
}

}  // namespace motley
