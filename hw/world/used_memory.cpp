#include "hw/world/used_memory.hpp"

#include "hw/rank/memory.hpp"

namespace motley {

void UsedMemory::use(std::span<const std::byte> bytes) {
  const bool stays = bytes.size() < FreedMemoryKept::kMostBytes && FreedMemoryKept::in_force();
  if (bytes.size() < kLeastBytes || !stays) return;
  const std::lock_guard lock(mutex_);
  if (gives_up_) return;
  Uses& here = uses_[bytes.data()];
  if (here.bytes < bytes.size()) {
    if (here.registration) --registrations_;
    here = {.bytes = bytes.size()};
  }
  if (here.registration || ++here.times < kUses) return;
  here.registration = messenger_.register_memory({const_cast<std::byte*>(bytes.data()), bytes.size()});
  if (here.registration)
    ++registrations_;
  else
    gives_up_ = true;
  if (uses_.size() >= kMost) gives_up_ = true;
}

std::size_t UsedMemory::registrations() const {
  const std::lock_guard lock(mutex_);
  return registrations_;
}

}  // namespace motley
