#include "hw/transport/frame.hpp"

#include <algorithm>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// A rank and one; 0: none.
std::uint32_t number_of(const std::optional<Rank>& rank) {
  return rank ? static_cast<std::uint32_t>(rank->value()) + 1 : 0;
}
std::optional<Rank> rank_of(std::uint32_t number) {
  if (number == 0 || number > 0x7fffffffU) return std::nullopt;
  return Rank(static_cast<std::int32_t>(number - 1));
}

// Writes a frame's fields, or reads them, in one order for both. A field is there only for kinds that have it.
class FrameWriter {
 public:
  explicit FrameWriter(WireWriter& to) : to_(to) {}
  template <std::unsigned_integral T>
  void number(const T& value) {
    to_.add(value);
  }
  void posted(const Posted& posted) {
    to_.add(posted.at_s);
    to_.add(number_of(posted.rank));
  }
  void rank(const std::optional<Rank>& rank) { to_.add(number_of(rank)); }
  void awaited(const std::vector<Awaited>& all) {
    const std::size_t count = std::min(all.size(), kAwaitedMost);
    to_.add(static_cast<std::uint16_t>(count));
    for (std::size_t i = 0; i < count; ++i) {
      to_.add(number_of(all[i].rank));
      to_.add(all[i].context);
      to_.add(all[i].operation);
    }
  }
  void text(const std::string& text) { to_.add(std::string_view(text).substr(0, kTextMost)); }
  void pieces(const std::vector<MemoryPiece>& pieces) {
    MOTLEY_CHECK(pieces.size() <= kPiecesMost);
    to_.add(static_cast<std::uint8_t>(pieces.size()));
    for (const MemoryPiece& piece : pieces) {
      to_.add(piece.address);
      to_.add(piece.bytes);
    }
  }
  void flag(bool value) { to_.add(static_cast<std::uint8_t>(value)); }
  void place(const RemoteMemory& place) {
    MOTLEY_CHECK(place.keys.size() <= kRailsMost);
    to_.add(static_cast<std::uint8_t>(place.keys.size()));
    if (!place.keys.empty()) to_.add(place.address);
    for (const std::uint32_t key : place.keys) to_.add(key);
  }
  void call(const Call& call) { to_.add(static_cast<std::uint8_t>(call.kind)); }
  void body(const std::vector<std::byte>& body, std::uint64_t bytes) {
    MOTLEY_CHECK(body.size() == bytes && bytes <= kEagerMost);
    to_.add(body);
  }

 private:
  static constexpr std::size_t kTextMost = 4000;
  WireWriter& to_;
};

class FrameReader {
 public:
  explicit FrameReader(WireReader& from) : from_(from) {}
  template <std::unsigned_integral T>
  void number(T& value) {
    value = from_.number<T>();
  }
  void posted(Posted& posted) {
    posted.at_s = from_.real();
    posted.rank = rank_of(from_.number<std::uint32_t>());
  }
  void rank(std::optional<Rank>& rank) { rank = rank_of(from_.number<std::uint32_t>()); }
  void awaited(std::vector<Awaited>& all) {
    const std::size_t count = from_.number<std::uint16_t>();
    good_ = good_ && count <= kAwaitedMost;
    for (std::size_t i = 0; i < count && good_ && from_.good(); ++i) {
      const auto rank = rank_of(from_.number<std::uint32_t>());
      const auto context = from_.number<std::uint64_t>(), operation = from_.number<std::uint64_t>();
      good_ = rank.has_value();
      if (rank) all.push_back({*rank, context, operation});
    }
  }
  void text(std::string& text) { text = from_.text(); }
  void pieces(std::vector<MemoryPiece>& pieces) {
    const std::size_t count = from_.number<std::uint8_t>();
    good_ = good_ && count <= kPiecesMost;
    for (std::size_t i = 0; i < count && good_ && from_.good(); ++i) {
      const auto address = from_.number<std::uint64_t>();
      pieces.push_back({address, from_.number<std::uint64_t>()});
    }
  }
  void flag(bool& value) {
    const auto number = from_.number<std::uint8_t>();
    good_ = good_ && number <= 1;
    value = number == 1;
  }
  void place(RemoteMemory& place) {
    const std::size_t count = from_.number<std::uint8_t>();
    good_ = good_ && count <= kRailsMost;
    if (count > 0) place.address = from_.number<std::uint64_t>();
    for (std::size_t i = 0; i < count && good_ && from_.good(); ++i)
      place.keys.push_back(from_.number<std::uint32_t>());
  }
  void call(Call& call) {
    const auto kind = from_.number<std::uint8_t>();
    good_ = good_ && kind <= static_cast<std::uint8_t>(Call::Kind::collective);
    call.kind = good_ ? static_cast<Call::Kind>(kind) : Call::Kind::message;
  }
  void body(std::vector<std::byte>& body, std::uint64_t bytes) {
    good_ = good_ && bytes <= kEagerMost;
    if (!good_) return;
    const auto read = from_.next(bytes);
    body.assign(read.begin(), read.end());
  }
  bool good() const { return good_; }

 private:
  WireReader& from_;
  bool good_ = true;
};

template <class Fields, class Key>
void visit_key(Fields& fields, Key& key) {
  fields.number(key.context);
  fields.number(key.operation);
  fields.number(key.part);
}

template <class Fields, class AFrame>
void visit_call(Fields& fields, AFrame& frame) {
  visit_key(fields, frame.key);
  fields.call(frame.call);
  fields.number(frame.call.collective);
  fields.number(frame.call.algorithm);
  fields.number(frame.call.element);
  fields.number(frame.call.reduce);
  fields.number(frame.call.root);
  fields.number(frame.call.members);
  fields.number(frame.call.count);
  fields.number(frame.bytes);
  fields.posted(frame.posted);
}

template <class Fields, class AnEndpoint>
void visit_endpoint(Fields& fields, AnEndpoint& endpoint) {
  fields.number(endpoint.rail);
  fields.number(endpoint.link);
  fields.number(endpoint.mtu);
  fields.number(endpoint.lid);
  fields.number(endpoint.queue);
  fields.number(endpoint.packet);
  fields.number(endpoint.slots);
  fields.number(endpoint.slot_bytes);
  for (auto& each : endpoint.gid) fields.number(each);
}

template <class Fields, class AFrame>
void visit(Fields& fields, AFrame& frame) {
  switch (frame.kind) {
    case FrameKind::ready:
      fields.number(frame.transfer);
      visit_call(fields, frame);
      return fields.place(frame.place);
    case FrameKind::eager:
      fields.number(frame.transfer);
      fields.number(frame.sender_number);
      visit_call(fields, frame);
      return fields.body(frame.body, frame.bytes);
    case FrameKind::recall:
      fields.number(frame.sender_number);
      return visit_key(fields, frame.key);
    case FrameKind::data:
      fields.number(frame.transfer);
      fields.number(frame.bytes);
      fields.number(frame.offset);
      fields.number(frame.length);
      fields.number(frame.attempt);
      fields.flag(frame.is_written);
      return fields.posted(frame.posted);
    case FrameKind::offer:
      fields.number(frame.transfer);
      fields.number(frame.sender_number);
      fields.number(frame.bytes);
      fields.number(frame.offset);
      fields.number(frame.mark.process);
      fields.number(frame.mark.at);
      fields.number(frame.mark.value);
      fields.pieces(frame.pieces);
      fields.number(frame.shared.descriptor);
      fields.number(frame.shared.offset);
      return fields.posted(frame.posted);
    case FrameKind::taken:
    case FrameKind::refused:
    case FrameKind::recalled:
      return fields.number(frame.sender_number);
    case FrameKind::withdraw:
    case FrameKind::withdrawn:
      return fields.number(frame.transfer);
    case FrameKind::abort:
      fields.rank(frame.rank);
      return fields.text(frame.text);
    case FrameKind::wire:
      return visit_endpoint(fields, frame.endpoint);
    case FrameKind::wired:
      return fields.number(frame.endpoint.rail);
    case FrameKind::unwired:
      fields.number(frame.endpoint.rail);
      fields.number(frame.came);
      return fields.text(frame.text);
    case FrameKind::answer:
      visit_key(fields, frame.key);
      fields.awaited(frame.awaited);
      return fields.text(frame.text);
    case FrameKind::ask:
      return visit_key(fields, frame.key);
    case FrameKind::goodbye:
      return;
  }
}

}  // namespace

Posted latest_of(const Posted& a, const Posted& b) {
  if (!a.rank || !b.rank) return a.rank ? a : b;
  return b.at_s > a.at_s ? b : a;
}

std::vector<std::byte> encode(const Frame& frame) {
  WireWriter writer;
  writer.add(std::uint16_t{0});  // the length, which is not known yet
  writer.add(static_cast<std::uint8_t>(frame.kind));
  FrameWriter fields(writer);
  visit(fields, frame);
  std::vector<std::byte> bytes = writer.take();
  const std::size_t length = bytes.size() - kFrameLengthBytes;
  MOTLEY_CHECK(length <= 0xffff);
  bytes[0] = static_cast<std::byte>(length & 0xffU);
  bytes[1] = static_cast<std::byte>(length >> 8U);
  return bytes;
}

std::optional<Frame> decode(std::span<const std::byte> rest) {
  WireReader reader(rest);
  const auto kind = reader.number<std::uint8_t>();
  if (!reader.good() || kind > static_cast<std::uint8_t>(FrameKind::recalled)) return std::nullopt;
  Frame frame;
  frame.kind = static_cast<FrameKind>(kind);
  FrameReader fields(reader);
  visit(fields, frame);
  if (!fields.good() || !reader.at_end()) return std::nullopt;
  return frame;
}

}  // namespace motley
