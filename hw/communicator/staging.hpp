// Which memory bytes lie in, and the host buffers through which those go that only copy calls may touch. A message out
// of such memory, or into it, is never copied as a whole: chunk by chunk, while other chunks are on their way. Who uses
// it holds the messenger's mutex. Read next: hw/communicator/staged.cpp, hw/device/memory.hpp.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "hw/communicator/element.hpp"
#include "hw/device/memory.hpp"
#include "hw/transport/shm/shared_file.hpp"
#include "hw/transport/transport.hpp"

namespace motley {

// Memory that was registered, by address. All other memory is the host's.
class MemoryTable {
 public:
  // The memory outlives its entry.
  void add(DeviceMemory& memory);
  void remove(const DeviceMemory& memory);
  // That in which the first byte lies; null: it was not registered.
  const DeviceMemory* memory_at(const std::byte* address) const;
  // Whether only copy calls may touch some of these bytes.
  bool is_staged(std::span<const std::byte> bytes) const;

  // Copies between any two kinds. Both have as many bytes.
  void copy(std::span<std::byte> into, std::span<const std::byte> from) const;
  void copy(std::span<std::byte> into, const Pieces& from) const;  // the pieces one after the other
  void clear(std::span<std::byte> bytes) const;                    // fills them with zeros
  // As reduce_into(), for elements of any kind of memory.
  void reduce(ElementType type, ReduceOp reduce, std::span<std::byte> into,
              std::span<const std::byte> from) const;

 private:
  // The first bytes that lie in one memory; none: the host's.
  struct Run {
    DeviceMemory* memory = nullptr;
    std::size_t bytes = 0;
  };
  Run first_run(std::span<const std::byte> bytes) const;
  void copy_run(std::span<std::byte> into, const Run& where, std::span<const std::byte> from,
                const Run& whence) const;

  std::map<std::uintptr_t, DeviceMemory*> memories_;  // by its first address
  std::size_t guarded_ = 0;                           // those of them that only copy calls may touch
};

// Host memory for chunks on their way. Buffers that are given back are used again. The first of them lie in a file that
// processes of this host map, so that these need no copy of their own; all others, or all where the system gives no
// such file, lie in memory of this process alone.
class StagingBuffers {
 public:
  // Of each buffer, which is also a chunk. Of 128 to 512 KiB the last was the fastest on two cores, by every path
  // (2026-11).
  static constexpr std::size_t kBytes = kDataBytesMost;
  class Buffer {
   public:
    Buffer(Buffer&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), slot_(other.slot_), own_(std::move(other.own_)) {}
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() {
      if (pool_ != nullptr) pool_->give_back(*this);
    }
    std::span<std::byte> first(std::size_t count) const;
    FilePlace place() const;  // in the shared file, if it lies there

   private:
    friend class StagingBuffers;
    Buffer(StagingBuffers& pool, std::size_t slot) : pool_(&pool), slot_(slot) {}
    StagingBuffers* pool_;
    std::size_t slot_ = 0;              // of the file
    std::unique_ptr<std::byte[]> own_;  // instead
  };
  Buffer take();
  bool are_shared();  // whether other processes can map the first of them
  std::size_t in_use() const { return in_use_; }

 private:
  static constexpr std::size_t kSlots = 64;
  void give_back(Buffer& buffer);
  void begin();
  bool begun_ = false;
  std::unique_ptr<SharedFile> file_;
  std::vector<std::size_t> free_;  // slots
  std::size_t in_use_ = 0;
};

// What of staged messages is on its way.
struct StagedChunks {
  // A part of a send. Its bytes have been copied out.
  struct Chunk {
    std::uint64_t send = 0;  // the number of the transfer
    Rank peer;
    std::size_t offset = 0, bytes = 0;
    std::uint32_t attempt = 0;
    StagingBuffers::Buffer buffer;
  };
  // What comes for a receive, of which attempt and at which offset.
  using Landing = std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>;
  // The buffers that the sends to one peer have. A peer that takes nothing keeps those of no other.
  struct Share {
    std::size_t used = 0;
    std::deque<std::uint64_t> waiting;  // sends that wait for one
  };
  static constexpr std::size_t kBuffersOfPeer = 4;

  StagingBuffers buffers;
  std::map<std::uint64_t, Chunk> sends;  // by the number of the chunk
  std::map<Landing, StagingBuffers::Buffer> landings;
  std::map<Rank, Share> shares;

  void forget() {
    sends.clear();
    landings.clear();
    shares.clear();
  }
};

}  // namespace motley
