#include "hw/transport/tcp/stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace motley {
namespace {

// A peer's frames wait for at most so many bytes of data.
constexpr std::size_t kSegment = kDataBytesMost;
// One call of advance() moves about as much, so that no stream waits long for another.
constexpr std::size_t kTurn = std::size_t{4} << 20U;
// What comes behind the bytes of a data frame, if they are those that were promised; else a zero.
constexpr std::byte kAsPromised{1};

// Drops the first `count` bytes.
void drop(Pieces& pieces, std::size_t count) {
  auto piece = pieces.begin();
  while (piece != pieces.end() && count >= piece->size()) count -= piece++->size();
  pieces.erase(pieces.begin(), piece);
  if (count > 0) pieces.front() = pieces.front().subspan(count);
}

}  // namespace

// ---- OutStream

void OutStream::add(const Frame& frame) {
  const std::vector<std::byte> bytes = encode(frame);
  control_.insert(control_.end(), bytes.begin(), bytes.end());
}

// Makes the next message ready to be written. Returns false if there is none.
bool OutStream::next_message() {
  if (control_.empty() && puts_.empty()) return false;
  head_ = std::exchange(control_, {});
  if (!puts_.empty()) next_segment();
  head_left_ = head_;
  return true;
}

// Of the Put whose turn it is, behind the frames of the head.
void OutStream::next_segment() {
  Rest rest = std::move(puts_.front());
  puts_.pop_front();
  Frame frame = rest.put.frame;
  const std::size_t whole = bytes_in(rest.put.pieces);
  frame.length = std::min(kSegment, whole - rest.begun);
  frame.offset += rest.begun;
  const std::vector<std::byte> data = encode(frame);
  head_.insert(head_.end(), data.begin(), data.end());
  body_ = cut(rest.put.pieces, rest.begun, frame.length);
  body_.emplace_back(&kAsPromised, 1);
  rest.begun += frame.length;
  if (rest.begun == whole)
    ends_put_ = rest.put.number;
  else
    puts_.push_back(std::move(rest));
}

// Returns false if no more can be written now.
bool OutStream::write_message() {
  while (!head_left_.empty() || !body_.empty()) {
    std::vector<std::span<const std::byte>> runs;
    runs.reserve(body_.size() + 1);
    if (!head_left_.empty()) runs.push_back(head_left_);
    runs.insert(runs.end(), body_.begin(), body_.end());
    const std::size_t written = socket_.write_some(runs);
    if (written == 0) return false;
    const std::size_t of_head = std::min(written, head_left_.size());
    head_left_ = head_left_.subspan(of_head);
    drop(body_, written - of_head);
  }
  return true;
}

void OutStream::abandon() {
  static const std::vector<std::byte> zeros(kSegment + 1);
  puts_.clear();
  ends_put_.reset();
  const std::size_t promised = bytes_in(body_);
  body_.clear();
  if (promised > 0) body_.emplace_back(zeros.data(), promised);
}

void OutStream::hear(TransportEvents& events) {
  if (!socket_.open() || heard_all_) return;
  std::array<std::byte, 4096> bytes;
  constexpr std::size_t kMost = 0xffff;
  try {
    for (std::size_t read = 1; read > 0 && !heard_all_;) {
      read = socket_.read_some(bytes);
      heard_.insert(heard_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(read));
      heard_all_ = heard_.size() > kFrameLengthBytes + kMost;
    }
  } catch (const SocketFailure& failure) {
    heard_all_ = true;
    if (!broken_) broken_ = failure.what();
  }
  if (heard_all_ && !broken_) broken_ = "it sent what nobody asked for";
  if (heard_.size() < kFrameLengthBytes) return;
  const std::size_t size = WireReader(heard_).number<std::uint16_t>();
  if (heard_.size() < kFrameLengthBytes + size) return;
  const auto frame = decode(std::span(heard_).subspan(kFrameLengthBytes, size));
  heard_.clear();
  if (frame && frame->kind == FrameKind::abort) events.came(peer_, *frame);
}

void OutStream::end_message(TransportEvents& events) {
  if (const auto number = std::exchange(ends_put_, std::nullopt)) events.left(*number);
}

void OutStream::advance(TransportEvents& events) {
  if (broken_) return;
  if (!socket_.open()) {
    const Handshake::State state = dial_->advance();
    if (state == Handshake::State::failed) broken_ = dial_->complaint();
    if (state != Handshake::State::done) return;
    socket_ = dial_->take();
    socket_.spare_pacing();
    dial_.reset();
  }
  try {
    for (std::size_t moved = 0; moved < kTurn;) {
      if (head_left_.empty() && body_.empty() && !next_message()) return;
      moved += head_left_.size() + bytes_in(body_);
      if (!write_message()) return;
      end_message(events);
    }
  } catch (const SocketFailure& failure) {
    broken_ = failure.what();
  }
}

// ---- InStream

std::size_t InStream::receive(std::span<std::byte> into, std::span<std::byte> then) {
  if (drained_) return 0;
  const std::size_t bytes = socket_.read_some(into, then);
  drained_ = bytes < into.size() + then.size();
  return bytes;
}

// Moves bytes that follow a data frame to their place. Returns false if no more can be read now.
bool InStream::read_body(TransportEvents& events) {
  while (!place_.empty() || thrown_away_ > 0 || !mark_) {
    if (begin_ < end_) {
      const std::size_t placed = std::min(place_.size(), end_ - begin_);
      if (placed > 0) std::memcpy(place_.data(), buffer_.data() + begin_, placed);
      place_ = place_.subspan(placed);
      begin_ += placed;
      const std::size_t thrown = place_.empty() ? std::min<std::size_t>(thrown_away_, end_ - begin_) : 0;
      thrown_away_ -= thrown;
      begin_ += thrown;
      if (place_.empty() && thrown_away_ == 0 && begin_ < end_) mark_ = buffer_[begin_++];
      continue;
    }
    begin_ = end_ = 0;
    if (place_.size() >= buffer_.size()) {
      // What follows, but not so much of it that bytes of the next place are copied once more.
      constexpr std::size_t kNextFrame = 128;
      const std::size_t read = receive(place_, std::span(buffer_).first(kNextFrame));
      if (read == 0) return false;
      const std::size_t placed = std::min(read, place_.size());
      end_ = read - placed;
      place_ = place_.subspan(placed);
    } else {
      end_ = receive(buffer_);
      if (end_ == 0) return false;
    }
  }
  const Frame data = *std::exchange(data_, std::nullopt);
  if (*mark_ == kAsPromised) events.landed(peer_, data);
  return true;
}

// Reads frames up to the next one that bytes follow. Returns false if no more can be read now.
bool InStream::read_frames(TransportEvents& events) {
  for (;;) {
    const std::size_t held = end_ - begin_;
    const std::span<const std::byte> bytes = std::span<const std::byte>(buffer_).subspan(begin_, held);
    std::size_t size = kFrameLengthBytes;
    if (held >= size) size += WireReader(bytes).number<std::uint16_t>();
    if (held < size || held < kFrameLengthBytes) {
      if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, held);
      begin_ = 0;
      end_ = held;
      if (size > buffer_.size()) buffer_.resize(size);
      const std::size_t read = receive(std::span(buffer_).subspan(end_));
      if (read == 0) return false;
      end_ += read;
      continue;
    }
    const auto frame = decode(bytes.subspan(kFrameLengthBytes, size - kFrameLengthBytes));
    if (!frame) throw SocketFailure(SocketEnd::closed, "it sent something that is no frame");
    begin_ += size;
    if (frame->kind != FrameKind::data) {
      events.came(peer_, *frame);
      continue;
    }
    place_ = events.place_for(peer_, *frame);
    place_ = place_.first(std::min<std::uint64_t>(place_.size(), frame->length));
    thrown_away_ = frame->length - place_.size();
    data_ = *frame;
    mark_.reset();
    return true;
  }
}

void InStream::abandon() {
  thrown_away_ += place_.size();
  place_ = {};
}

void InStream::tell_back(const Frame& abort) const {
  try {
    socket_.write_some(encode(abort));
  } catch (const SocketFailure&) {  // it has gone
  }
}

std::optional<std::string> InStream::advance(TransportEvents& events) {
  drained_ = false;
  try {
    // What was read is used at once: nothing says later that it is there.
    for (std::size_t moved = 0; moved < kTurn || begin_ < end_;) {
      if (!data_ && !read_frames(events)) return std::nullopt;
      moved += place_.size() + 1;
      if (!read_body(events)) return std::nullopt;
    }
  } catch (const SocketFailure& failure) {
    return failure.what();
  }
  return std::nullopt;
}

}  // namespace motley
