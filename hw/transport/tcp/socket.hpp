// A TCP socket that closes itself, with deadlines. Sockets are non-blocking; waiting is poll's. Nothing here knows of
// ranks. Read next: hw/transport/tcp/transport.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
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
struct SocketFailure : std::runtime_error {  // whoever knows the peer's rank says so
  SocketFailure(SocketEnd end_of, const std::string& what) : std::runtime_error(what), end(end_of) {}
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
  int release() { return std::exchange(descriptor_, -1); }  // the caller's to close
  void shut_down() const;  // wakes whoever waits on it, here and at the peer; from any thread

  // As much as goes without waiting; 0 when nothing does. Throw SocketFailure(closed).
  std::size_t write_some(std::span<const std::byte> bytes) const;
  std::size_t read_some(std::span<std::byte> bytes) const;
  // All of it, or SocketFailure.
  void write_all(std::span<const std::byte> bytes, double timeout_s) const;
  void read_all(std::span<std::byte> bytes, double timeout_s) const;

  std::string peer_host() const;     // numeric
  std::uint16_t local_port() const;  // of a listener too

 private:
  int descriptor_ = -1;
};

// Port 0: any free one. An empty host listens on every interface.
Socket listen_on(const Address& address);
Socket adopt_listener(int descriptor);  // inherited from a launcher
Socket accept_from(const Socket& listener, double timeout_s);
// Tries again until the deadline: the other side may not listen yet.
Socket connect_to(const Address& address, double timeout_s);

// "host:port"; Refusal "bad-rendezvous" otherwise.
Address parse_address(const std::string& text);

double monotonic_s();  // of this host's steady clock

}  // namespace motley
