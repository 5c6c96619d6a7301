#include "hw/transport/shm/peer_memory.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hw/transport/host_id.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Reads all bytes. Returns 0 or an errno.
int read_memory(pid_t process, std::span<const MemoryPiece> pieces, std::span<std::byte> into) {
  constexpr std::size_t kRuns = 64;
  std::array<iovec, kRuns> from;
  std::size_t piece = 0, begun = 0;  // the next byte to read
  while (!into.empty()) {
    std::size_t runs = 0, wanted = 0;
    for (std::size_t i = piece; i < pieces.size() && runs < kRuns && wanted < into.size(); ++i, ++runs) {
      const std::size_t skipped = i == piece ? begun : 0;
      const std::size_t length = std::min<std::size_t>(pieces[i].bytes - skipped, into.size() - wanted);
      from[runs] = {reinterpret_cast<void*>(pieces[i].address + skipped), length};
      wanted += length;
    }
    if (wanted == 0) return EFAULT;
    const iovec to{into.data(), wanted};
    const ssize_t read = process_vm_readv(process, &to, 1, from.data(), runs, 0);
    if (read <= 0) return read < 0 ? errno : EFAULT;
    into = into.subspan(static_cast<std::size_t>(read));
    for (std::size_t left = static_cast<std::size_t>(read); left > 0;) {
      const std::size_t used = std::min<std::size_t>(left, pieces[piece].bytes - begun);
      left -= used;
      begun += used;
      if (begun < pieces[piece].bytes) continue;
      ++piece;
      begun = 0;
    }
  }
  return 0;
}

int read_mark(const MemoryMark& mark, std::uint64_t& value) {
  const MemoryPiece piece{mark.at, sizeof value};
  return read_memory(static_cast<pid_t>(mark.process), std::span(&piece, 1),
                     std::as_writable_bytes(std::span(&value, 1)));
}

}  // namespace

std::string memory_domain() {
  struct stat numbers {};
  if (stat("/proc/self/ns/pid", &numbers) != 0) return "";
  return fmt::format("{}/{}", host_id(), numbers.st_ino);
}

std::string why_apart(const std::string& domain, const std::string& other) {
  if (domain.empty() || other.empty()) return "a process that does not know its namespace";
  if (domain == other) return "";
  return host_of(domain) == host_of(other) ? "another namespace of process ids" : "another host";
}

void let_siblings_read() {
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // fails where the kernel has no Yama, which then asks nothing
}

std::optional<PeerMemory> PeerMemory::open(const MemoryMark& mark, std::string& why) {
  const auto process = static_cast<pid_t>(mark.process);
  std::uint64_t value = 0;
  const int error = read_mark(mark, value);
  if (error != 0)
    why = fmt::format("process {} cannot be read: {}", process, std::strerror(error));
  else if (value != mark.value)
    why = fmt::format("process {} is another one", process);
  if (error != 0 || value != mark.value) return std::nullopt;
  return PeerMemory(mark);
}

bool PeerMemory::has_mark() const {
  std::uint64_t value = 0;
  return read_mark(mark_, value) == 0 && value == mark_.value;
}

bool PeerMemory::read(const std::vector<MemoryPiece>& pieces, std::span<std::byte> into) const {
  return read_memory(static_cast<pid_t>(mark_.process), pieces, into) == 0 && has_mark();
}

std::span<const std::byte> PeerMemory::shared_bytes(const FilePlace& place, std::size_t bytes) {
  if (place.descriptor == 0) return {};
  if (std::exchange(descriptor_, place.descriptor) != place.descriptor)
    file_ = SharedFile::open(mark_.process, place.descriptor);
  if (!file_) return {};
  const std::span<const std::byte> all = file_->bytes();
  const bool fits = place.offset <= all.size() && bytes <= all.size() - place.offset;
  return fits ? all.subspan(place.offset, bytes) : std::span<const std::byte>();
}

}  // namespace motley
