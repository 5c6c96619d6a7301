#include "hw/transport/shm/shared_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace motley {
namespace {

// Whoever has mapped it can rely on its length.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

// Takes over the descriptor.
std::unique_ptr<SharedFile> SharedFile::map(int descriptor, std::size_t bytes, int protection) {
  void* const begin = mmap(nullptr, bytes, protection, MAP_SHARED, descriptor, 0);
  if (begin != MAP_FAILED)
    return std::unique_ptr<SharedFile>(new SharedFile(descriptor, static_cast<std::byte*>(begin), bytes));
  close(descriptor);
  return nullptr;
}

std::unique_ptr<SharedFile> SharedFile::create(std::size_t bytes) {
  const int descriptor = memfd_create("staging", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return nullptr;
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) == 0 && fcntl(descriptor, F_ADD_SEALS, kSeals) == 0)
    return map(descriptor, bytes, PROT_READ | PROT_WRITE);
  close(descriptor);
  return nullptr;
}

std::unique_ptr<SharedFile> SharedFile::open(std::uint64_t process, std::uint32_t descriptor) {
  const std::string path = fmt::format("/proc/{}/fd/{}", process, descriptor);
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (opened < 0) return nullptr;
  struct stat facts {};
  const bool is_ours =
      fcntl(opened, F_GET_SEALS) == kSeals && fstat(opened, &facts) == 0 && facts.st_size > 0;
  if (is_ours) return map(opened, static_cast<std::size_t>(facts.st_size), PROT_READ);
  close(opened);
  return nullptr;
}

SharedFile::~SharedFile() {
  munmap(begin_, bytes_);
  close(descriptor_);
}

}  // namespace motley
