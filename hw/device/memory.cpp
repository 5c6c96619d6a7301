#include "hw/device/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Pages of this process; an empty mapping has one, too.
class Mapping {
 public:
  Mapping(std::size_t bytes, int protection, int flags, int file)
      : bytes_(std::max<std::size_t>(bytes, 1)), begin_(mmap(nullptr, bytes_, protection, flags, file, 0)) {
    if (begin_ == MAP_FAILED)
      throw RunFailure(fmt::format("no memory of {} bytes: mmap: {}", bytes, std::strerror(errno)));
  }
  ~Mapping() { munmap(begin_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* begin() const { return static_cast<std::byte*>(begin_); }

 private:
  std::size_t bytes_;
  void* begin_;
};

class HostMemory final : public DeviceMemory {
 public:
  explicit HostMemory(std::size_t bytes)
      : bytes_(bytes),
        pages_(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1) {}
  // Returns why it cannot; empty: it is pinned.
  std::string pin() {
    if (mlock(pages_.begin(), std::max<std::size_t>(bytes_, 1)) == 0) {
      kind_ = MemoryKind::pinned;
      return "";
    }
    const int error = errno;
    rlimit most{};
    getrlimit(RLIMIT_MEMLOCK, &most);
    return fmt::format("{} bytes are not pinned: mlock: {} (a process may pin {} bytes)", bytes_,
                       std::strerror(error), most.rlim_cur);
  }

  MemoryKind kind() const override { return kind_; }
  std::span<std::byte> bytes() const override { return {pages_.begin(), bytes_}; }
  void copy_in(std::span<std::byte> into, std::span<const std::byte> from) override {
    std::copy(from.begin(), from.end(), into.begin());
  }
  void copy_out(std::span<std::byte> into, std::span<const std::byte> from) const override {
    std::copy(from.begin(), from.end(), into.begin());
  }

 private:
  std::size_t bytes_;
  Mapping pages_;
  MemoryKind kind_ = MemoryKind::host;
};

// A file in memory, which ends with its mappings.
class MemoryFile {
 public:
  explicit MemoryFile(std::size_t bytes) : descriptor_(memfd_create("guarded", MFD_CLOEXEC)) {
    if (descriptor_ >= 0 && ftruncate(descriptor_, static_cast<off_t>(std::max<std::size_t>(bytes, 1))) == 0)
      return;
    const int error = errno;
    if (descriptor_ >= 0) close(descriptor_);
    throw RunFailure(fmt::format("no guarded memory of {} bytes: {}", bytes, std::strerror(error)));
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// The same pages are mapped twice: at the addresses that all know, where they are unreadable, and at others, which only
// the copy calls know. So no copy opens the memory to other threads.
class GuardedMemory final : public DeviceMemory {
 public:
  explicit GuardedMemory(std::size_t bytes) : GuardedMemory(bytes, MemoryFile(bytes)) {}

  MemoryKind kind() const override { return MemoryKind::guarded; }
  std::span<std::byte> bytes() const override { return {guarded_.begin(), bytes_}; }
  void copy_in(std::span<std::byte> into, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(opened(into, from.size()), from.data(), from.size());
  }
  void copy_out(std::span<std::byte> into, std::span<const std::byte> from) const override {
    if (!from.empty()) std::memcpy(into.data(), opened(from, into.size()), from.size());
  }

 private:
  GuardedMemory(std::size_t bytes, const MemoryFile& file)
      : bytes_(bytes),
        guarded_(bytes, PROT_NONE, MAP_SHARED, file.descriptor()),
        opened_(bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.descriptor()) {}

  std::byte* opened(std::span<const std::byte> bytes, std::size_t other_bytes) const {
    const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
    const auto begin = reinterpret_cast<std::uintptr_t>(guarded_.begin());
    MOTLEY_CHECK(first >= begin && first - begin <= bytes_ && bytes.size() <= bytes_ - (first - begin) &&
                 bytes.size() == other_bytes);
    return opened_.begin() + (first - begin);
  }

  std::size_t bytes_;
  Mapping guarded_, opened_;
};

}  // namespace

std::unique_ptr<DeviceMemory> allocate_memory(MemoryKind kind, std::size_t bytes, std::string& why) {
  why.clear();
  if (kind == MemoryKind::guarded) return std::make_unique<GuardedMemory>(bytes);
  auto memory = std::make_unique<HostMemory>(bytes);
  if (kind == MemoryKind::pinned) why = memory->pin();
  return memory;
}

}  // namespace motley
