// The two ends of a connection between ranks after its handshake. Frames and bytes flow one way, from the rank that
// dialled, so that two ranks which call each other at once need not agree who was first. Read next:
// hw/transport/tcp/transport.hpp.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hw/transport/tcp/handshake.hpp"
#include "hw/transport/transport.hpp"

namespace motley {

// The sending end: dials, then writes frames in order and the bytes of several Puts in turns.
class OutStream {
 public:
  OutStream(Rank peer, Dial dialling) : peer_(peer), dial_(std::move(dialling)) {}

  Rank peer() const { return peer_; }
  int descriptor() const { return socket_.open() ? socket_.descriptor() : dial_->descriptor(); }
  bool wants_to_write() const { return socket_.open() ? has_work() : dial_->wants_to_write(); }
  // Whether something waits to be written.
  bool has_work() const {
    return !head_left_.empty() || !body_.empty() || !control_.empty() || !puts_.empty();
  }
  // Whether some of that are frames, or may be.
  bool holds_frames() const { return !head_left_.empty() || !control_.empty(); }
  bool is_open() const { return socket_.open(); }
  const std::optional<std::string>& broken() const { return broken_; }

  void add(const Frame& frame);
  void add(Put put) { puts_.push_back({std::move(put), 0}); }
  void abandon();  // as Transport::abandon()
  // Finds out whether the other end has closed. Tells `events` why, where it has said so.
  void hear(TransportEvents& events);
  // Dials or writes what it can without waiting. Tells `events` which Puts have left.
  void advance(TransportEvents& events);

 private:
  // The part of a Put that has not been begun.
  struct Rest {
    Put put;
    std::size_t begun = 0;  // bytes
  };
  bool next_message();
  void next_segment();
  bool write_message();
  void end_message(TransportEvents& events);

  Rank peer_;
  std::optional<Dial> dial_;  // while it dials
  Socket socket_;
  std::vector<std::byte> control_;  // frames that wait
  std::deque<Rest> puts_;
  // What is being written: some frames, the last of which may be that of some data, and then these.
  std::vector<std::byte> head_;
  std::span<const std::byte> head_left_;
  Pieces body_;
  std::optional<std::uint64_t> ends_put_;  // the Put whose last bytes are being written
  std::vector<std::byte> heard_;           // of a frame that the other end sends before it closes
  bool heard_all_ = false;                 // nothing more will come
  std::optional<std::string> broken_;
};

// The receiving end.
class InStream {
 public:
  InStream(Rank peer, std::uint16_t index, Socket socket)
      : peer_(peer), index_(index), socket_(std::move(socket)), buffer_(kBuffer) {}
  Rank peer() const { return peer_; }
  std::uint16_t index() const { return index_; }
  int descriptor() const { return socket_.descriptor(); }
  // Reads what it can without waiting and tells it to `events`. Returns why nothing more will come; nothing: more may.
  std::optional<std::string> advance(TransportEvents& events);
  void abandon();  // as Transport::abandon()
  // Says to the other end why this one closes.
  void tell_back(const Frame& abort) const;

 private:
  static constexpr std::size_t kBuffer = std::size_t{64} << 10U;
  bool read_body(TransportEvents& events);
  bool read_frames(TransportEvents& events);
  // Reads into the one and then into the other. Returns 0 also where the last read has shown that nothing is left.
  std::size_t receive(std::span<std::byte> into, std::span<std::byte> then = {});

  Rank peer_;
  std::uint16_t index_;
  Socket socket_;
  std::vector<std::byte> buffer_;  // [begin_, end_): what was read and not used
  std::size_t begin_ = 0, end_ = 0;
  std::optional<Frame> data_;  // whose bytes are coming
  std::span<std::byte> place_;
  std::uint64_t thrown_away_ = 0;  // of its bytes, still to come
  bool drained_ = false;           // a read brought less than it could have
  std::optional<std::byte> mark_;  // what came behind them
};

}  // namespace motley
