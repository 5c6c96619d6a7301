// The TCP transport: a rank dials another when it first has something to say to it, so that only those are connected
// which talk. Large transfers may go over several connections side by side. Read next: hw/transport/tcp/stream.hpp.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "hw/transport/tcp/handshake.hpp"
#include "hw/transport/tcp/stream.hpp"
#include "hw/transport/transport.hpp"

namespace motley {

struct TcpOptions {
  Rank rank;
  Socket listener;                    // where the others reach this rank
  std::map<Rank, Address> addresses;  // where it reaches them
  JobToken token = JobToken();
  int streams = 1;  // connections to a peer that carry data
};

class TcpTransport : public Transport {
 public:
  // `events` outlives it, and is called only from tell(), put(), progress() and flush().
  TcpTransport(TcpOptions options, TransportEvents& events);

  void tell(Rank peer, const Frame& frame) override;
  void put(Rank peer, Put put) override;
  void hold() override { ++holds_; }
  void release() override;
  void send_held() override;
  bool has_told(Rank peer) const override;
  void progress() override;
  void wait(double seconds) override;
  void wake() override;
  void wait_also_for(int descriptor) override;
  void abandon() override;
  void tell_all(const Frame& frame) override;
  void tell_callers(const Frame& abort) override;
  void flush(double seconds) override;

 private:
  using OutKey = std::pair<Rank, std::uint16_t>;  // the peer, and which of the connections to it
  // A stream and whether epoll waits until it can be written.
  struct Out {
    OutStream stream;
    int watched = -1;  // the descriptor that epoll knows; -1: none
    bool for_writing = false;
  };
  // That of the first connection with a peer to end.
  struct Ending {
    std::string why;
    double at_s = 0;
  };
  Out& out_to(Rank peer, std::uint16_t index);
  void advance(Out& out);
  void watch(Out& out);
  void admit();
  void read_from(int descriptor);
  bool reads_few();
  void look_at_all();
  void look_after_endings();
  void end_reading(int descriptor, const std::string& why);

  // Passes on what streams tell, but that a Put has left only once the last of its parts has.
  class Counting : public TransportEvents {
   public:
    explicit Counting(TransportEvents& to) : to_(to) {}
    void expect(std::uint64_t number, std::size_t parts) { parts_[number] = parts; }
    void came(Rank from, const Frame& frame) override { to_.came(from, frame); }
    std::span<std::byte> place_for(Rank from, const Frame& data) override {
      return to_.place_for(from, data);
    }
    void landed(Rank from, const Frame& data) override { to_.landed(from, data); }
    void left(std::uint64_t number) override;
    void lost(Rank peer, const std::string& why) override { to_.lost(peer, why); }
    void noted(const std::string& what) override { to_.noted(what); }

   private:
    TransportEvents& to_;
    std::map<std::uint64_t, std::size_t> parts_;  // by Put: those that have not left
  };

  TcpOptions options_;
  Counting events_;
  std::array<epoll_event, 64> ready_{};  // by wait(), for the next progress()
  int ready_count_ = 0;
  Socket poll_, wake_;
  Door door_;
  std::map<OutKey, Out> out_;
  std::map<int, InStream> in_;  // by descriptor
  std::map<Rank, Ending> endings_;
  std::set<Rank> lost_;
  double admitted_s_ = 0;
  unsigned looks_ = 0;
  int holds_ = 0;  // calls of hold() without their release()
};

}  // namespace motley
