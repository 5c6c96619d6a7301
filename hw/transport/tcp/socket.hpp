// TCP sockets that close themselves, and calls on them with deadlines. Sockets are non-blocking: poll does the waiting.
// Nothing here knows about ranks. Read next: hw/transport/tcp/transport.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace motley {

struct Address {
  std::string host;  // numeric, or a name
  std::uint16_t port = 0;
};

enum class SocketEnd : std::uint8_t { closed, timed_out, refused };
// A failed call on a socket. It names no rank: a caller that knows the peer's rank adds it.
struct SocketFailure : std::runtime_error {
  SocketFailure(SocketEnd why, const std::string& what) : std::runtime_error(what), end(why) {}
  SocketEnd end;
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }  // the caller closes it
  // Whether the other end has closed its side. Bytes that it sent before may still be there.
  bool is_ended() const;
  // Wakes every thread that waits on the socket, here and at the peer. Any thread may call it.
  void shut_down() const;

  // These move as many bytes as they can without waiting, and return how many: 0 when none. They throw
  // SocketFailure(closed).
  std::size_t write_some(std::span<const std::byte> bytes) const;
  // Of several runs of bytes, one after the other.
  std::size_t write_some(std::span<const std::span<const std::byte>> pieces) const;
  std::size_t read_some(std::span<std::byte> bytes) const { return read_some(bytes, {}); }
  std::size_t read_some(std::span<std::byte> first, std::span<std::byte> then) const;
  // These move all bytes. They throw SocketFailure(closed), or (timed_out) where it takes longer than `timeout_s` and
  // seconds_for() that many bytes, however they trickle.
  void write_all(std::span<const std::byte> bytes, double timeout_s) const;
  void read_all(std::span<std::byte> bytes, double timeout_s) const;

  // Where both ends are on one host, lets nothing slow down what is sent: there is no network to be crowded. BBR, which
  // some systems use, paces, and then half as many bytes pass. What the kernel refuses changes nothing.
  void spare_pacing() const;

  // Ends the connection when the other end's host has not answered for about this long, whether or not anything is
  // sent. A process there that is busy or stopped changes nothing, because its kernel answers.
  // Assumes: a process takes what is sent to it before so much time has passed.
  void end_when_silent(double seconds) const;

  std::string peer_host() const;     // a numeric address
  std::string local_host() const;    // of this end
  std::uint16_t local_port() const;  // works for a listener, too

 private:
  int descriptor_ = -1;  // -1: closed
};

// The bytes of a value that has no pointers, for write_all() and read_all().
template <typename T>
std::span<const std::byte> bytes_of_value(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> writable_bytes_of_value(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Port 0 means any free port, and an empty host the loopback interface.
Socket listen_on(const Address& address);
Socket adopt_listener(int descriptor);  // takes over a listener that a launcher passed on
Socket accept_from(const Socket& listener, double timeout_s);
std::optional<Socket> accept_now(const Socket& listener);  // nothing: nobody waits there
// Begins to connect without waiting. connect_error() says how it went once the socket can be written: 0 when it is
// connected, an errno, or nothing while it goes on. Throws SocketFailure where there is no such address.
Socket begin_to_connect(const Address& address);
std::optional<int> connect_error(const Socket& socket);
// Tries until the deadline, because the other side may not listen yet.
Socket connect_to(const Address& address, double timeout_s);

// Reads "host:port" or "[IPv6]:port". Throws Refusal "bad-rendezvous" for any other text.
Address parse_address(const std::string& text);
std::string print(const Address& address);

// What as many bytes may take on the slowest network that is worth its name: 1 MiB/s.
constexpr double seconds_for(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

double monotonic_s();  // seconds on this host's steady clock
double recent_s();     // the same, up to some milliseconds old: it costs much less

}  // namespace motley
