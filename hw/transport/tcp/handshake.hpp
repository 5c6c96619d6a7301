// How a connection begins. Both ends prove that they belong to the job before anything else is read:
//
//   acceptor -> dialer   challenge  8 bytes that name the protocol, 16 random ones
//   dialer -> acceptor   answer     who calls whom and why, 16 random bytes, 32 of proof
//   acceptor -> dialer   welcome    32 bytes of proof, or 32 zeros: the dialer does not have the token
//
// A Door accepts and a Dial calls; neither ever blocks. Who is silent, slow or wrong is turned away after a few
// seconds, and keeps nobody else waiting. Read next: hw/transport/token.hpp.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "hw/transport/tcp/socket.hpp"
#include "hw/transport/token.hpp"
#include "models/program/program.hpp"

namespace motley {

enum class ConnectionPurpose : std::uint8_t { rendezvous, data };

// Who dials whom, and what for.
struct Introduction {
  ConnectionPurpose purpose = ConnectionPurpose::data;
  Rank from, to;
  std::uint16_t index = 0;  // of several connections from one rank to another
  auto operator<=>(const Introduction&) const = default;
};

// One end of the exchange. The owner calls advance() when the socket can be read or written.
class Handshake {
 public:
  enum class State : std::uint8_t { goes_on, done, failed };
  static Handshake of_acceptor(const JobToken& token);
  static Handshake of_dialer(const JobToken& token, const Introduction& introduction);

  // Reads and writes what it can without waiting.
  State advance(const Socket& socket);
  bool wants_to_write() const { return !outgoing_left_.empty(); }
  const Introduction& introduction() const { return introduction_; }  // on the acceptor: once done
  const std::string& complaint() const { return complaint_; }         // of what failed

 private:
  Handshake(const JobToken& token, bool accepts);
  State fail(std::string why);
  State take();  // what has come
  State take_challenge();
  State take_answer();
  void expect(std::size_t bytes);
  void send(std::vector<std::byte> bytes);
  std::vector<std::byte> statement(bool of_dialer) const;

  JobToken token_;
  bool accepts_;
  Introduction introduction_;
  Nonce mine_, theirs_{};
  std::vector<std::byte> incoming_, outgoing_;
  std::size_t came_ = 0;
  std::span<const std::byte> outgoing_left_;
  bool said_all_ = false;
  std::string complaint_;
};

// Accepts connections of the job on a listener.
class Door {
 public:
  struct Guest {
    Introduction introduction;
    Socket socket;
    std::string host;  // the numeric address it came from
  };
  using Note = std::function<void(const std::string&)>;  // of who was turned away, and why

  Door(Socket listener, const JobToken& token, Note note);
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Those who have proved that they belong to the job since the last call.
  std::vector<Guest> admit();
  // Readable when admit() has something to do. Silent strangers do not make it so: call admit() each second, too.
  int descriptor() const { return events_.descriptor(); }

 private:
  struct Stranger {
    Socket socket;
    Handshake handshake;
    double until_s;
    std::string host;
  };
  void accept_all();
  void watch(const Stranger& stranger) const;
  void turn_away(const Stranger& stranger, const std::string& why) const;

  Socket listener_;
  Socket events_;  // an epoll
  JobToken token_;
  Note note_;
  std::list<Stranger> strangers_;  // the oldest first
};

// How long a Dial tries.
struct Patience {
  double refused_s = 60;  // while nobody listens there
  double silent_s = 60;   // in all
};

// Calls a rank.
class Dial {
 public:
  Dial(Address address, const JobToken& token, const Introduction& introduction, const Patience& patience);
  Handshake::State advance();
  int descriptor() const { return socket_.descriptor(); }  // -1: it waits to try again
  bool wants_to_write() const;
  Socket take() { return std::move(socket_); }  // once done
  const std::string& complaint() const { return complaint_; }

 private:
  void try_again();

  Address address_;
  JobToken token_;
  Introduction introduction_;
  Patience patience_;
  double since_s_, again_s_ = 0;
  std::optional<double> refused_since_s_;  // nobody listens there since then
  Socket socket_;
  bool connected_ = false;
  std::optional<Handshake> handshake_;
  std::string complaint_;
};

// Calls, and blocks until it is done. Throws SocketFailure.
Socket dial(const Address& address, const JobToken& token, const Introduction& introduction,
            double timeout_s);

}  // namespace motley
