// Kinds of memory: what copy calls bring in they bring out again, and nothing else may touch what is guarded.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include "hw/device/memory.hpp"
#include "tests/support/sanitized.hpp"

namespace motley {
namespace {

std::unique_ptr<DeviceMemory> memory_of(MemoryKind kind, std::size_t bytes) {
  std::string why;
  auto memory = allocate_memory(kind, bytes, why);
  CAPTURE(why);
  REQUIRE(memory->kind() == (why.empty() ? kind : MemoryKind::host));
  return memory;
}

std::vector<std::byte> bytes_from(std::size_t count, std::size_t first) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 37 + i / 253 + first);
  return bytes;
}

// Whether a process that does it ends by a signal.
template <class Touch>
bool is_deadly(const Touch& touch) {
  const pid_t process = fork();
  if (process == 0) {
    for (const int each : {SIGSEGV, SIGBUS}) std::signal(each, SIG_DFL);
    const rlimit none{};
    setrlimit(RLIMIT_CORE, &none);
    touch();
    _exit(0);
  }
  int status = 0;
  waitpid(process, &status, 0);
  return WIFSIGNALED(status);
}

TEST_CASE("what is copied into memory of any kind comes out of it", "[memory]") {
  for (const MemoryKind kind : every<MemoryKind>())
    for (const std::size_t bytes : {0U, 1U, 4095U, 4096U, 4097U, 100'001U}) {
      CAPTURE(name_of(kind), bytes);
      const auto memory = memory_of(kind, bytes);
      REQUIRE(memory->bytes().size() == bytes);
      std::vector<std::byte> before(bytes, std::byte{1});
      memory->copy_out(before, memory->bytes());
      CHECK(before == std::vector<std::byte>(bytes));
      const auto all = bytes_from(bytes, 1), part = bytes_from(bytes / 3, 9);
      memory->copy_in(memory->bytes(), all);
      memory->copy_in(memory->bytes().subspan(bytes / 5, part.size()), part);
      auto expected = all;
      std::copy(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(bytes / 5));
      std::vector<std::byte> after(bytes), after_part(part.size());
      memory->copy_out(after, memory->bytes());
      memory->copy_out(after_part, memory->bytes().subspan(bytes / 5, part.size()));
      CHECK(after == expected);
      CHECK(after_part == part);
    }
}

TEST_CASE("who touches guarded memory outside of a copy call dies, and other memory may be touched",
          "[memory]") {
  for (const MemoryKind kind : every<MemoryKind>()) {
    CAPTURE(name_of(kind));
    const auto memory = memory_of(kind, 10'000);
    memory->copy_in(memory->bytes(), bytes_from(10'000, 3));
    volatile std::byte* const touched = memory->bytes().data() + 5'000;
    CHECK(is_deadly([&] { static_cast<void>(*touched); }) == (kind == MemoryKind::guarded));
    CHECK(is_deadly([&] { *touched = std::byte{1}; }) == (kind == MemoryKind::guarded));
  }
}

TEST_CASE("a copy by one thread opens guarded memory to no other", "[memory]") {
  const auto memory = memory_of(MemoryKind::guarded, 1 << 20);
  CHECK(is_deadly([&] {
    std::atomic<bool> copies = false;
    std::thread([&] {
      std::vector<std::byte> bytes(memory->bytes().size());
      for (;;) {
        memory->copy_in(memory->bytes(), bytes);
        copies = true;
      }
    }).detach();
    while (!copies) std::this_thread::yield();
    volatile std::byte* const touched = memory->bytes().data();
    static_cast<void>(*touched);
  }));
}

TEST_CASE("copies beyond guarded memory are refused", "[memory]") {
  const auto memory = memory_of(MemoryKind::guarded, 100);
  std::vector<std::byte> bytes(101);
  const std::span<std::byte> beyond(memory->bytes().data(), 101);
  CHECK_THROWS(memory->copy_in(beyond, bytes));
  CHECK_THROWS(memory->copy_out(bytes, beyond));
  CHECK_THROWS(memory->copy_out(bytes, memory->bytes()));
}

TEST_CASE("memory that the system does not let be pinned is the host's, and says why", "[memory]") {
  if (tests::kSanitized) return;  // sanitizers let nothing be pinned, and say that it was
  const pid_t process = fork();
  if (process == 0) {
    const rlimit few{4096, 4096};
    const bool limited = setrlimit(RLIMIT_MEMLOCK, &few) == 0;
    if (geteuid() == 0 && setuid(65534) != 0) _exit(3);  // nothing limits what root pins
    std::string why;
    const auto memory = allocate_memory(MemoryKind::pinned, 1 << 20, why);
    const bool says = why.rfind("1048576 bytes are not pinned: mlock: ", 0) == 0 &&
                      why.find("a process may pin 4096 bytes") != std::string::npos;
    _exit(limited && memory->kind() == MemoryKind::host && says ? 0 : 1);
  }
  int status = 0;
  waitpid(process, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace motley

TEST_CASE("memory that is given back is the system's again", "[memory]") {
  const auto addresses = [] {  // pages that this process has addresses for
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages;
  };
  constexpr std::size_t kBytes = std::size_t{64} << 20U;
  for (const MemoryKind kind : {MemoryKind::host, MemoryKind::guarded}) {
    memory_of(kind, kBytes);
    const std::int64_t before = addresses();
    for (int i = 0; i < 64; ++i) memory_of(kind, kBytes);
    CAPTURE(name_of(kind));
    CHECK((addresses() - before) * sysconf(_SC_PAGESIZE) < std::int64_t{8} * std::int64_t{kBytes});
  }
}
