// Memory of the host for what comes and is then reduced. What was given back last is taken first, because it lies in
// the nearest cache. Only hw/communicator includes this file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace motley {

struct Scratch {
  std::unique_ptr<std::byte[]> memory;  // of any values
  std::size_t capacity = 0, bytes = 0;
  std::span<std::byte> span() const { return {memory.get(), bytes}; }
};

class ScratchPool {
 public:
  Scratch take(std::size_t bytes) {
    Scratch scratch;
    if (!kept_.empty()) {
      scratch = std::move(kept_.back());
      kept_.pop_back();
    }
    if (scratch.capacity < bytes) scratch = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes, 0};
    scratch.bytes = bytes;
    return scratch;
  }
  void give_back(Scratch scratch) {
    if (kept_.size() < kMost && scratch.capacity <= kLargest) kept_.push_back(std::move(scratch));
  }

 private:
  static constexpr std::size_t kMost = 8, kLargest = std::size_t{1} << 20U;
  std::vector<Scratch> kept_;
};

}  // namespace motley
