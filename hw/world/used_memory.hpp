// Memory that the messages of a rank go out of and into, again and again: tensors that are held throughout a run, and
// what their allocator gives anew. Once a device has it registered, it reads and writes it in place. Read next:
// hw/communicator/messenger.hpp.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "hw/communicator/messenger.hpp"

namespace motley {

// Any thread may call it. Without RDMA it does nothing.
class UsedMemory {
 public:
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10U;
  // Assumes: to register takes as long as to copy a few times. Neither figure was measured on a card.
  static constexpr int kUses = 3;

  // The messenger outlives it.
  explicit UsedMemory(Messenger& messenger) : messenger_(messenger) {}

  // Before a message of these bytes. They are registered when they are used for the third time, until this ends; only
  // while FreedMemoryKept is in force: else other pages may come to where they lay, which no device would see.
  void use(std::span<const std::byte> bytes);
  std::size_t registrations() const;

 private:
  struct Uses {
    std::size_t bytes = 0;
    int times = 0;
    std::shared_ptr<void> registration = {};
  };
  static constexpr std::size_t kMost = 4096;

  Messenger& messenger_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Uses> uses_;
  std::size_t registrations_ = 0;
  bool gives_up_ = false;  // there is no device, or it takes no more
};

}  // namespace motley
