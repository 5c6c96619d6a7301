#include "hw/transport/tcp/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

[[noreturn]] void fail(SocketEnd end, const std::string& doing) {
  throw SocketFailure(end, fmt::format("{}: {}", doing, std::strerror(errno)));
}

void prepare(int descriptor) {
  const int on = 1;
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

// Waits for `events`. Returns false if the deadline passes first.
bool wait_for(int descriptor, short events, double until_s) {
  for (;;) {
    const double left_s = until_s - monotonic_s();
    if (left_s <= 0) return false;
    pollfd waiting{descriptor, events, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::min(left_s, 1000.0) * 1000.0) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail(SocketEnd::closed, "poll");
  }
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const Address& address, bool to_listen) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = to_listen ? AI_PASSIVE : 0;
  addrinfo* list = nullptr;
  const int status = getaddrinfo(address.host.empty() ? "127.0.0.1" : address.host.c_str(),
                                 std::to_string(address.port).c_str(), &wanted, &list);
  if (status != 0)
    throw SocketFailure(SocketEnd::refused, fmt::format("{}: {}", address.host, gai_strerror(status)));
  return Addresses(list);
}

// The address of one end of a socket, IPv4 or IPv6.
class AnyAddress {
 public:
  template <class Ask>
  explicit AnyAddress(const Ask& ask) {
    socklen_t length = sizeof address_;
    ask(reinterpret_cast<sockaddr*>(&address_), &length);
  }
  std::string host() const {
    char text[INET6_ADDRSTRLEN] = "";
    if (address_.ss_family == AF_INET6)
      inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&address_)->sin6_addr, text, sizeof text);
    else
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&address_)->sin_addr, text, sizeof text);
    return text;
  }
  std::uint16_t port() const {
    return ntohs(address_.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address_)->sin6_port
                                                : reinterpret_cast<const sockaddr_in*>(&address_)->sin_port);
  }

 private:
  sockaddr_storage address_{};
};

// Connections that have ended keep their ports for a minute. When none is left, the kernel gives out no port of them
// by itself, but lets a listener have one that it names.
bool bind_to_some_port(const Socket& listener, const addrinfo& target) {
  constexpr unsigned kFirst = 32768, kCount = 28000, kTries = 200;
  sockaddr_storage address{};
  std::memcpy(&address, target.ai_addr, target.ai_addrlen);
  std::minstd_rand random(static_cast<unsigned>(getpid()) + static_cast<unsigned>(monotonic_s() * 1e6));
  for (unsigned i = 0; i < kTries; ++i) {
    const auto port = static_cast<std::uint16_t>(kFirst + random() % kCount);
    if (target.ai_family == AF_INET6)
      reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = htons(port);
    else
      reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(port);
    if (bind(listener.descriptor(), reinterpret_cast<const sockaddr*>(&address), target.ai_addrlen) == 0)
      return true;
  }
  return false;
}

}  // namespace

double recent_s() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double monotonic_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool Socket::is_ended() const {
  pollfd ended{descriptor_, POLLRDHUP, 0};
  return poll(&ended, 1, 0) > 0;
}

void Socket::shut_down() const {
  if (descriptor_ >= 0) shutdown(descriptor_, SHUT_RDWR);
}

std::size_t Socket::write_some(std::span<const std::byte> bytes) const {
  return write_some(std::span(&bytes, 1));
}

std::size_t Socket::write_some(std::span<const std::span<const std::byte>> pieces) const {
  std::array<iovec, 64> runs;
  const std::size_t count = std::min(pieces.size(), runs.size());
  for (std::size_t i = 0; i < count; ++i)
    runs[i] = {const_cast<std::byte*>(pieces[i].data()), pieces[i].size()};
  msghdr message{};
  message.msg_iov = runs.data();
  message.msg_iovlen = count;
  const ssize_t written = sendmsg(descriptor_, &message, MSG_NOSIGNAL);
  if (written >= 0) return static_cast<std::size_t>(written);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  fail(SocketEnd::closed, "send");
}

std::size_t Socket::read_some(std::span<std::byte> first, std::span<std::byte> then) const {
  std::array<iovec, 2> places{{{first.data(), first.size()}, {then.data(), then.size()}}};
  const ssize_t received = then.empty() ? recv(descriptor_, first.data(), first.size(), 0)
                                        : readv(descriptor_, places.data(), places.size());
  if (received > 0) return static_cast<std::size_t>(received);
  if (received == 0) throw SocketFailure(SocketEnd::closed, "the connection was closed");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  fail(SocketEnd::closed, "recv");
}

void Socket::write_all(std::span<const std::byte> bytes, double timeout_s) const {
  const double limit_s = timeout_s + seconds_for(bytes.size()), until_s = monotonic_s() + limit_s;
  while (!bytes.empty()) {
    if (!wait_for(descriptor_, POLLOUT, until_s))
      throw SocketFailure(SocketEnd::timed_out,
                          fmt::format("{} bytes were not taken within {:.3g} s", bytes.size(), limit_s));
    bytes = bytes.subspan(write_some(bytes));
  }
}

void Socket::read_all(std::span<std::byte> bytes, double timeout_s) const {
  const double limit_s = timeout_s + seconds_for(bytes.size()), until_s = monotonic_s() + limit_s;
  while (!bytes.empty()) {
    if (!wait_for(descriptor_, POLLIN, until_s))
      throw SocketFailure(SocketEnd::timed_out,
                          fmt::format("{} bytes did not come within {:.3g} s", bytes.size(), limit_s));
    bytes = bytes.subspan(read_some(bytes));
  }
}

void Socket::spare_pacing() const {
  constexpr std::string_view kPlainest = "reno";
  if (local_host() == peer_host())
    setsockopt(descriptor_, IPPROTO_TCP, TCP_CONGESTION, kPlainest.data(), kPlainest.size());
}

void Socket::end_when_silent(double seconds) const {
  constexpr int kProbes = 5;
  const auto set = [&](int option, double value) {
    const int whole = std::max(1, static_cast<int>(value));
    setsockopt(descriptor_, IPPROTO_TCP, option, &whole, sizeof whole);
  };
  set(TCP_KEEPIDLE, seconds / 2);
  set(TCP_KEEPINTVL, seconds / 2 / kProbes);
  set(TCP_KEEPCNT, kProbes);
  set(TCP_USER_TIMEOUT, seconds * 1e3);  // milliseconds
}

std::string Socket::peer_host() const {
  const AnyAddress address(
      [this](sockaddr* into, socklen_t* length) { getpeername(descriptor_, into, length); });
  return address.host();
}

std::string Socket::local_host() const {
  const AnyAddress address(
      [this](sockaddr* into, socklen_t* length) { getsockname(descriptor_, into, length); });
  return address.host();
}

std::uint16_t Socket::local_port() const {
  const AnyAddress address(
      [this](sockaddr* into, socklen_t* length) { getsockname(descriptor_, into, length); });
  return address.port();
}

Socket listen_on(const Address& address) {
  const Addresses target = resolve(address, true);
  Socket listener(socket(target->ai_family, target->ai_socktype, target->ai_protocol));
  if (!listener.open()) fail(SocketEnd::refused, "socket");
  const int on = 1;
  setsockopt(listener.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const std::string doing = "listen on " + print(address);
  if (bind(listener.descriptor(), target->ai_addr, target->ai_addrlen) != 0 &&
      (address.port != 0 || errno != EADDRINUSE || !bind_to_some_port(listener, *target)))
    fail(SocketEnd::refused, doing);
  if (listen(listener.descriptor(), SOMAXCONN) != 0) fail(SocketEnd::refused, doing);
  prepare(listener.descriptor());
  return listener;
}

Socket adopt_listener(int descriptor) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0)
    throw SocketFailure(SocketEnd::refused, fmt::format("descriptor {} does not listen", descriptor));
  prepare(descriptor);
  return Socket(descriptor);
}

Socket accept_from(const Socket& listener, double timeout_s) {
  const double until_s = monotonic_s() + timeout_s;
  for (;;) {
    if (!wait_for(listener.descriptor(), POLLIN, until_s))
      throw SocketFailure(SocketEnd::timed_out, fmt::format("nobody came for {} s", timeout_s));
    Socket connection(accept(listener.descriptor(), nullptr, nullptr));
    if (connection.open()) {
      prepare(connection.descriptor());
      return connection;
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) fail(SocketEnd::closed, "accept");
  }
}

std::optional<Socket> accept_now(const Socket& listener) {
  for (;;) {
    Socket connection(accept(listener.descriptor(), nullptr, nullptr));
    if (connection.open()) {
      prepare(connection.descriptor());
      return connection;
    }
    if (errno != EINTR && errno != ECONNABORTED) return std::nullopt;
  }
}

Socket begin_to_connect(const Address& address) {
  const Addresses target = resolve(address, false);
  Socket connection(socket(target->ai_family, target->ai_socktype, target->ai_protocol));
  if (!connection.open()) fail(SocketEnd::refused, "socket");
  prepare(connection.descriptor());
  const int status = connect(connection.descriptor(), target->ai_addr, target->ai_addrlen);
  if (status != 0 && errno != EINPROGRESS)
    fail(SocketEnd::refused, fmt::format("connect to {}", print(address)));
  return connection;
}

std::optional<int> connect_error(const Socket& socket) {
  pollfd waiting{socket.descriptor(), POLLOUT, 0};
  if (poll(&waiting, 1, 0) <= 0) return std::nullopt;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

Socket connect_to(const Address& address, double timeout_s) {
  const double until_s = monotonic_s() + timeout_s;
  for (;;) {
    Socket connection;
    try {
      connection = begin_to_connect(address);
    } catch (const SocketFailure&) {
      if (monotonic_s() >= until_s) throw;
    }
    if (connection.open() && wait_for(connection.descriptor(), POLLOUT, until_s) &&
        connect_error(connection) == 0)
      return connection;
    if (monotonic_s() >= until_s)
      throw SocketFailure(SocketEnd::refused, fmt::format("nobody listens on {}", print(address)));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Address parse_address(const std::string& text) {
  const auto colon = text.rfind(':');
  Address address;
  unsigned port = 0;
  if (colon != std::string::npos) {
    address.host = text.substr(0, colon);
    const bool brackets =
        address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
    if (brackets) address.host = address.host.substr(1, address.host.size() - 2);
    if (!brackets && address.host.find(':') != std::string::npos) address.host.clear();
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
    if (parsed.ec != std::errc() || parsed.ptr != end) port = 0;
  }
  if (address.host.empty() || port == 0 || port > 65535)
    throw Refusal(Exit::usage, "bad-rendezvous", {}, fmt::format("`{}` is no host:port", text),
                  "for example 10.0.0.1:29500: where rank 0 listens");
  address.port = static_cast<std::uint16_t>(port);
  return address;
}

std::string print(const Address& address) {
  const bool six = address.host.find(':') != std::string::npos;
  return six ? fmt::format("[{}]:{}", address.host, address.port)
             : fmt::format("{}:{}", address.host, address.port);
}

}  // namespace motley
