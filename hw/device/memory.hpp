// Memory that tensors lie in, of a kind: the host's own, pinned, or guarded. Guarded memory stands for a chip's: its
// addresses are those of pages that nobody may touch, and its bytes go in and out by copy calls alone. So all that
// stages bytes for a chip is built and tested on machines without one; the memory of a GPU is one more implementation.
// Read next: hw/communicator/staging.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "models/base/words.hpp"

namespace motley {

// pinned: its pages never leave the main memory.
enum class MemoryKind : std::uint8_t { host, pinned, guarded };
template <>
inline constexpr auto kWords<MemoryKind> = words("host", "pinned", "guarded");

// Whether the processor and the kernel may touch such memory at its addresses.
constexpr bool is_host_accessible(MemoryKind kind) { return kind != MemoryKind::guarded; }

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual MemoryKind kind() const = 0;
  // Its addresses, which no other memory has. It begins filled with zeros.
  virtual std::span<std::byte> bytes() const = 0;
  // Each copies as many bytes as `from` has, which `into` has, too. Those on the side of this memory lie within
  // bytes(), those on the other side are the host's. Several threads may call them at once for different bytes.
  virtual void copy_in(std::span<std::byte> into, std::span<const std::byte> from) = 0;
  virtual void copy_out(std::span<std::byte> into, std::span<const std::byte> from) const = 0;
};

// Where the system does not let so much be pinned, the memory is the host's, and `why` says what stood against it.
// Throws RunFailure if there is none.
std::unique_ptr<DeviceMemory> allocate_memory(MemoryKind kind, std::size_t bytes, std::string& why);

}  // namespace motley
