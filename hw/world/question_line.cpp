#include "hw/world/question_line.hpp"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{64} << 20U;  // of what becomes several messages

}  // namespace

bool ChildLine::wait(double seconds) {
  pollfd waiting{socket_.descriptor(), POLLIN, 0};
  return poll(&waiting, 1, static_cast<int>(std::ceil(seconds * 1000))) > 0;
}

std::optional<std::string> ChildLine::ending() const {
  if (!socket_.is_ended()) return std::nullopt;
  return "nobody asks for it any more";
}

// The limit of silence stands for the timeout.
void LaunchedLine::write_all(std::span<const std::byte> bytes, double /*timeout_s*/) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    try {
      connections_.send(other_, {reinterpret_cast<const char*>(piece.data()), piece.size()});
    } catch (const RunFailure& failure) {
      throw SocketFailure(SocketEnd::closed, failure.what());
    }
    bytes = bytes.subspan(piece.size());
  }
}

void LaunchedLine::read_all(std::span<std::byte> bytes, double /*timeout_s*/) {
  while (!bytes.empty()) {
    if (read_ == message_.size()) try {
        message_ = connections_.receive(other_);
        read_ = 0;
      } catch (const RunFailure& failure) {
        throw SocketFailure(SocketEnd::closed, failure.what());
      }
    const std::size_t count = std::min(bytes.size(), message_.size() - read_);
    std::memcpy(bytes.data(), message_.data() + read_, count);
    read_ += count;
    bytes = bytes.subspan(count);
  }
}

bool LaunchedLine::wait(double seconds) {
  return read_ < message_.size() || connections_.wait_for_message(other_, seconds);
}

}  // namespace motley
