// A file in memory that other processes of this host map, if they may read this one (hw/transport/shm/peer_memory.hpp
// says when): what lies in it they use in place. It has no name, and ends with the last process that has it. Read next:
// hw/communicator/staging.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace motley {

// A mapped file. Its pages take memory only once they have been written.
class SharedFile {
 public:
  // Null: the system gives none.
  static std::unique_ptr<SharedFile> create(std::size_t bytes);
  // That of another process, for reading. Null: it cannot be opened, or it is no such file.
  static std::unique_ptr<SharedFile> open(std::uint64_t process, std::uint32_t descriptor);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  std::uint32_t descriptor() const { return static_cast<std::uint32_t>(descriptor_); }
  std::span<std::byte> bytes() const { return {begin_, bytes_}; }  // of another process: only to read

 private:
  SharedFile(int descriptor, std::byte* begin, std::size_t bytes)
      : descriptor_(descriptor), begin_(begin), bytes_(bytes) {}
  static std::unique_ptr<SharedFile> map(int descriptor, std::size_t bytes, int protection);

  int descriptor_;
  std::byte* begin_;
  std::size_t bytes_;
};

}  // namespace motley
