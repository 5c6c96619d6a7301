// Bytes of a test that lie in memory of some kind, at an address that suits nothing, while a rank uses them.
#pragma once

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hw/communicator/messenger.hpp"
#include "hw/device/memory.hpp"

namespace motley::tests {

// Guarded memory that knows how much was copied at once.
class CountedMemory final : public DeviceMemory {
 public:
  explicit CountedMemory(std::size_t bytes) {
    std::string why;
    memory_ = allocate_memory(MemoryKind::guarded, bytes, why);
  }
  MemoryKind kind() const override { return memory_->kind(); }
  std::span<std::byte> bytes() const override { return memory_->bytes(); }
  void copy_in(std::span<std::byte> into, std::span<const std::byte> from) override {
    most_ = std::max(most_, from.size());
    memory_->copy_in(into, from);
  }
  void copy_out(std::span<std::byte> into, std::span<const std::byte> from) const override {
    most_ = std::max(most_, from.size());
    memory_->copy_out(into, from);
  }
  std::size_t most() const { return most_; }

 private:
  std::unique_ptr<DeviceMemory> memory_;
  mutable std::size_t most_ = 0;
};

class HeldBytes {
 public:
  HeldBytes(Messenger& messenger, MemoryKind kind, std::span<const std::byte> bytes) {
    std::string why;
    memory_ = allocate_memory(kind, bytes.size() + kBefore, why);
    registration_ = messenger.register_memory(*memory_);
    payload_ = memory_->bytes().subspan(kBefore);
    memory_->copy_in(payload_, bytes);
  }
  std::span<std::byte> payload() const { return payload_; }
  std::vector<std::byte> contents() const {
    std::vector<std::byte> bytes(payload_.size());
    memory_->copy_out(bytes, payload_);
    return bytes;
  }

 private:
  static constexpr std::size_t kBefore = 3;
  std::unique_ptr<DeviceMemory> memory_;
  std::shared_ptr<void> registration_;  // ends before the memory
  std::span<std::byte> payload_;
};

}  // namespace motley::tests
