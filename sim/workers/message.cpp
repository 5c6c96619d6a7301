// Whole messages through a pipe: the reader puts together again what the system cuts into pieces.
#include "sim/workers/message.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace motley {
namespace {

constexpr std::size_t kBlock = 65536;  // bytes: the capacity of a pipe in Linux

void write_all(int descriptor, const char* data, std::size_t count) {
  while (count > 0) {
    const ssize_t written = write(descriptor, data, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw BrokenMessage();
    data += written;
    count -= static_cast<std::size_t>(written);
  }
}

// Reads at most `count` bytes, as soon as there are any, and returns how many. 0: the writer has ended.
std::size_t read_some(int descriptor, char* data, std::size_t count) {
  while (true) {
    const ssize_t length = read(descriptor, data, count);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) throw BrokenMessage();
    return static_cast<std::size_t>(length);
  }
}

}  // namespace

void MessageWriter::bytes(const void* data, std::size_t count) {
  const char* const begin = static_cast<const char*>(data);
  if (gathered_.size() + count > kBlock) flush();
  if (count > kBlock)
    write_all(descriptor_, begin, count);
  else
    gathered_.append(begin, count);
}

void MessageWriter::flush() {
  write_all(descriptor_, gathered_.data(), gathered_.size());
  gathered_.clear();
}

void MessageReader::bytes(void* data, std::size_t count) {
  char* to = static_cast<char*>(data);
  while (count > 0) {
    if (taken_ < block_.size()) {
      const std::size_t part = std::min(count, block_.size() - taken_);
      std::memcpy(to, block_.data() + taken_, part);
      taken_ += part;
      to += part;
      count -= part;
    } else if (count >= kBlock) {
      const std::size_t part = read_some(descriptor_, to, count);
      if (part == 0) throw BrokenMessage();
      to += part;
      count -= part;
    } else if (at_end()) {
      throw BrokenMessage();
    }
  }
}

bool MessageReader::at_end() {
  if (taken_ < block_.size()) return false;
  block_.resize(kBlock);
  taken_ = 0;
  block_.resize(read_some(descriptor_, block_.data(), kBlock));
  return block_.empty();
}

}  // namespace motley
