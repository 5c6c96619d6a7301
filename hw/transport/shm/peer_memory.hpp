// Bytes straight out of the memory of another process of this host, in one copy, where the kernel lets a process read
// its siblings (the same user, and no ptrace_scope above 1). Nothing is ever written there, so that a failed run cannot
// damage a process that goes on. Read next: hw/communicator/messenger.hpp.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hw/transport/frame.hpp"
#include "hw/transport/shm/shared_file.hpp"

namespace motley {

// Processes of one domain know each other by the same numbers: those of one host_id() and one namespace
// of process ids.
std::string memory_domain();
// Why processes of two domains cannot read each other; empty: they are of one.
std::string why_apart(const std::string& domain, const std::string& other);
// Lets the other processes of this user read this one from now on.
void let_siblings_read();

class PeerMemory {
 public:
  // Nothing: this process cannot read that one, or it is another one; `why` then says so.
  static std::optional<PeerMemory> open(const MemoryMark& mark, std::string& why);
  // Reads the pieces one after the other into `into`, which is as large. Returns false if that is not possible, or if
  // the mark is no longer there afterwards: then other bytes may have been in their place.
  bool read(const std::vector<MemoryPiece>& pieces, std::span<std::byte> into) const;
  // Bytes of a file that the process shares, in place; empty: they cannot be seen here. Who has used them asks
  // has_mark().
  std::span<const std::byte> shared_bytes(const FilePlace& place, std::size_t bytes);
  bool has_mark() const;

 private:
  explicit PeerMemory(const MemoryMark& mark) : mark_(mark) {}
  MemoryMark mark_;
  std::uint32_t descriptor_ = 0;  // of the file that was opened last, or could not be; 0: none was
  std::unique_ptr<SharedFile> file_;
};

}  // namespace motley
