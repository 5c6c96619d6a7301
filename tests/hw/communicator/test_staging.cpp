// Messages out of memory that only copy calls may touch, and into it: the same bytes as any other message, chunk by
// chunk through few buffers, all of which are free again afterwards. A touch outside of copy calls would end the test.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <thread>

#include "hw/communicator/communicator.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "tests/support/held_bytes.hpp"
#include "tests/support/loopback.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sanitized.hpp"

namespace motley {
namespace {

using namespace tests;
using Bytes = std::vector<std::byte>;

Bytes staged_numbers(std::size_t count, std::size_t first) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251 + first);
  return bytes;
}

Rank the_other(const Messenger& messenger) { return Rank(1 - messenger.rank().value()); }

// Sizes around those at which messages go in another way, or in one chunk more.
const std::vector<std::size_t> kStagedSizes = {0,       1,       4'095,   4'096,   4'097,    16'383,  16'384,
                                               16'385,  65'537,  131'071, 131'072, 131'073,  262'143, 262'144,
                                               262'145, 524'287, 524'288, 524'289, 3'000'001};

// Both send each other a message of that size, in three pieces, at once.
void exchange_staged(Messenger& messenger, MemoryKind from, MemoryKind into, std::size_t bytes,
                     std::uint64_t tag, bool keeps_zeros_back = false, std::size_t zeros = 0) {
  const Rank other = the_other(messenger);
  const auto message = [&](Rank rank) {
    Bytes all = staged_numbers(bytes, tag + at(rank.value()));
    std::fill(all.end() - static_cast<std::ptrdiff_t>(zeros), all.end(), std::byte{0});
    return all;
  };
  const HeldBytes outgoing(messenger, from, message(messenger.rank())),
      incoming(messenger, into, Bytes(bytes, std::byte{0x5a}));
  const std::span<const std::byte> out = outgoing.payload();
  SendOrder send = send_to(other, tag, out);
  if (keeps_zeros_back)
    send.keeps_zeros_back = true;
  else
    send.pieces = {out.first(bytes / 3), out.subspan(bytes / 3, bytes / 7),
                   out.subspan(bytes / 3 + bytes / 7)};
  const Request sent = messenger.post(std::move(send)),
                received = messenger.post(receive_from(other, tag, incoming.payload()));
  messenger.wait(received);
  messenger.wait(sent);
  demand(incoming.contents() == message(other), "wrong bytes");
  demand(outgoing.contents() == message(messenger.rank()), "a message was changed by sending it");
}

void demand_that_buffers_are_free(const Messenger& messenger) {
  demand(messenger.staging_buffers() == 0, "a buffer is not free again");
}

constexpr std::size_t kMoreThanInFlight = std::size_t{16} << 20U;  // more than the system keeps on its way

constexpr std::array kKindPairs = {
    std::pair(MemoryKind::guarded, MemoryKind::guarded), std::pair(MemoryKind::guarded, MemoryKind::host),
    std::pair(MemoryKind::host, MemoryKind::guarded), std::pair(MemoryKind::pinned, MemoryKind::guarded),
    std::pair(MemoryKind::pinned, MemoryKind::pinned)};

TEST_CASE("messages of any size are the same out of every kind of memory, into every kind",
          "[communicator][staging]") {
  for (const bool reads_memory : {false, true})
    for (const int streams : {1, 3}) {
      if (tests::kSanitized && (streams > 1) == reads_memory) continue;  // each takes half a minute
      Loopback how;
      how.reads_memory = reads_memory;
      how.streams = streams;
      rethrow_first(on_loopback(
          2,
          [](Messenger& messenger) {
            std::uint64_t tag = 0;
            constexpr std::span kPairs(kKindPairs.data(), tests::kSanitized ? 2 : kKindPairs.size());
            for (const auto& [from, into] : kPairs)
              for (const std::size_t bytes : kStagedSizes) {
                exchange_staged(messenger, from, into, bytes, ++tag);
                demand_that_buffers_are_free(messenger);
                for (const std::size_t zeros : {std::size_t{0}, bytes / 2, bytes})
                  exchange_staged(messenger, from, into, bytes, ++tag, true, zeros);
                demand_that_buffers_are_free(messenger);
              }
          },
          how));
    }
}

TEST_CASE("a message out of guarded memory takes the path that any other takes, and says so once",
          "[communicator][staging]") {
  for (const bool reads_memory : {false, true}) {
    std::mutex mutex;
    std::vector<Path> told;
    Loopback how;
    how.reads_memory = reads_memory;
    how.on_send = [&](Rank, const SendOrder& order, Path path) {
      const std::lock_guard lock(mutex);
      if (bytes_in(order.pieces) > 1'000'000) told.push_back(path);
    };
    const Path right = reads_memory ? Path::shm : Path::tcp;
    rethrow_first(on_loopback(
        2,
        [&](Messenger& messenger) {
          const HeldBytes held(messenger, MemoryKind::guarded, Bytes(5'000'000));
          const bool sends = messenger.rank() == 0_rank;
          const Request request = sends ? messenger.post(send_to(1_rank, 1, held.payload()))
                                        : messenger.post(receive_from(0_rank, 1, held.payload()));
          messenger.wait(request);
          PathSet expected;
          expected.add(right);
          demand(messenger.paths_of(request) == expected, "another path");
          demand(messenger.path_to(the_other(messenger), 5'000'000) == right, "another path is told");
        },
        how));
    REQUIRE(told == std::vector{right});
  }
}

TEST_CASE("chunks that a peer cannot read are sent to it", "[communicator][staging]") {
  std::mutex mutex;
  std::vector<Path> told;
  Loopback how;
  how.reads_memory = true;
  how.change = [](MessengerOptions& options) { options.reads_memory = options.rank == 0_rank; };
  how.on_send = [&](Rank from, const SendOrder& order, Path path) {
    const std::lock_guard lock(mutex);
    if (from == 0_rank && bytes_in(order.pieces) > 1'000'000) told.push_back(path);
  };
  rethrow_first(on_loopback(
      2,
      [](Messenger& messenger) {
        std::uint64_t tag = 0;
        // Of the first one some chunks are refused while others are on their way again.
        for (const std::size_t bytes : {kMoreThanInFlight, std::size_t{3'000'001}, std::size_t{3'000'001}})
          exchange_staged(messenger, MemoryKind::guarded, MemoryKind::guarded, bytes, ++tag);
        demand_that_buffers_are_free(messenger);
      },
      how));
  REQUIRE(told == std::vector{Path::shm, Path::tcp, Path::tcp, Path::tcp});
}

TEST_CASE("the kind of memory is known by its address for as long as it is registered",
          "[communicator][staging]") {
  rethrow_first(on_loopback(1, [](Messenger& messenger) {
    for (const MemoryKind kind : every<MemoryKind>()) {
      std::string why;
      const auto memory = allocate_memory(kind, 10'000, why);
      const std::byte* const begin = memory->bytes().data();
      {
        const auto registration = messenger.register_memory(*memory);
        demand(messenger.kind_of_memory(begin) == memory->kind(), "the first byte");
        demand(messenger.kind_of_memory(begin + 9'999) == memory->kind(), "the last byte");
        demand(messenger.kind_of_memory(begin + 10'000) == MemoryKind::host, "a byte behind it");
      }
      demand(messenger.kind_of_memory(begin) == MemoryKind::host, "it is no longer registered");
    }
  }));
}

// ---- buffers

TEST_CASE("a shared file is seen by whoever opens it, and no other file is one", "[communicator][staging]") {
  const auto file = SharedFile::create(10'000);
  REQUIRE(file != nullptr);
  const auto process = static_cast<std::uint64_t>(getpid());
  const auto opened = SharedFile::open(process, file->descriptor());
  REQUIRE(opened != nullptr);
  const Bytes bytes = staged_numbers(10'000, 4);
  std::copy(bytes.begin(), bytes.end(), file->bytes().begin());
  CHECK(std::equal(bytes.begin(), bytes.end(), opened->bytes().begin(), opened->bytes().end()));
  const Socket other = listen_on({"127.0.0.1", 0});
  CHECK(SharedFile::open(process, static_cast<std::uint32_t>(other.descriptor())) == nullptr);
  CHECK(SharedFile::open(process, 987'654) == nullptr);
}

TEST_CASE("buffers lie in the shared file as far as it reaches, and are used again",
          "[communicator][staging]") {
  StagingBuffers pool;
  std::vector<StagingBuffers::Buffer> buffers;
  std::size_t outside = 0;
  for (std::size_t i = 0; i < 70; ++i) {
    buffers.push_back(pool.take());
    const std::span<std::byte> whole = buffers.back().first(StagingBuffers::kBytes);
    whole.front() = whole.back() = static_cast<std::byte>(i);
    outside += buffers.back().place().descriptor == 0 ? 1 : 0;
  }
  CHECK(pool.in_use() == buffers.size());
  CHECK(outside > 0);
  CHECK(outside < buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const std::span<std::byte> whole = buffers[i].first(StagingBuffers::kBytes);
    CHECK(whole.front() == static_cast<std::byte>(i));
    CHECK(whole.back() == static_cast<std::byte>(i));
  }
  buffers.clear();
  CHECK(pool.in_use() == 0);
  CHECK(pool.take().place().descriptor != 0);
}

TEST_CASE("no message is copied as a whole, and a peer that takes nothing keeps few buffers",
          "[communicator][staging]") {
  for (const bool reads_memory : {false, true}) {
    std::atomic<bool> looked = false;
    Loopback how;
    how.reads_memory = reads_memory;
    rethrow_first(on_loopback(
        3,
        [&](Messenger& messenger) {
          CountedMemory memory(kMoreThanInFlight);
          const auto registration = messenger.register_memory(memory);
          if (messenger.rank() == 0_rank) {
            std::vector<Request> all;
            for (std::uint64_t tag = 0; tag < 8; ++tag)
              all.push_back(messenger.post(send_to(1_rank, tag, memory.bytes().subspan(tag))));
            // Rank 1 is ready for all of them now, and then moves nothing.
            std::byte go{};
            messenger.wait(messenger.post(receive_from(1_rank, 99, {&go, 1})));
            for (int i = 0; i < 100; ++i) {
              for (const Request& each : all) messenger.test(each);
              demand(messenger.staging_buffers() > 0, "nothing is on its way");
              demand(messenger.staging_buffers() <= StagedChunks::kBuffersOfPeer, "too many buffers");
            }
            // Another peer has buffers of its own.
            messenger.wait(messenger.post(send_to(2_rank, 5, memory.bytes())));
            looked = true;
            for (const Request& each : all) messenger.wait(each);
          } else if (messenger.rank() == 1_rank) {
            std::vector<Request> all;
            for (std::uint64_t tag = 0; tag < 8; ++tag)
              all.push_back(messenger.post(receive_from(0_rank, tag, memory.bytes().subspan(tag))));
            std::byte go{};
            messenger.wait(messenger.post(send_to(0_rank, 99, {&go, 1})));
            while (!looked) std::this_thread::yield();
            for (const Request& each : all) messenger.wait(each);
          } else {
            messenger.wait(messenger.post(receive_from(0_rank, 5, memory.bytes())));
          }
          demand(memory.most() > 4'096, "nothing was copied");
          demand(memory.most() <= StagingBuffers::kBytes, "too much was copied at once");
          demand_that_buffers_are_free(messenger);
        },
        how));
  }
}

TEST_CASE("what is cancelled or fails gives all its buffers back", "[communicator][staging]") {
  for (const bool reads_memory : {false, true}) {
    std::atomic<bool> stopped = false;
    Loopback how;
    how.reads_memory = reads_memory;
    const auto thrown = on_loopback(
        2,
        [&](Messenger& messenger) {
          const HeldBytes held(messenger, MemoryKind::guarded, Bytes(kMoreThanInFlight));
          const Rank other = the_other(messenger);
          const bool sends = messenger.rank() == 0_rank;
          exchange_staged(messenger, MemoryKind::host, MemoryKind::host, 10, 3);  // now they are connected
          const Request never = sends ? messenger.post(send_to(other, 7, held.payload()))
                                      : messenger.post(receive_from(other, 8, held.payload()));
          messenger.cancel(never);
          if (sends) messenger.wait(never);  // the other side has to be asked
          demand_that_buffers_are_free(messenger);
          const Request request = sends ? messenger.post(send_to(other, 1, held.payload()))
                                        : messenger.post(receive_from(other, 1, held.payload()));
          if (sends) {
            while (messenger.staging_buffers() == 0) messenger.test(request);  // rank 1 takes nothing yet
            messenger.abort("enough");
            stopped = true;
          }
          while (!stopped) std::this_thread::yield();
          try {
            messenger.wait(request);
          } catch (const RunFailure&) {
            demand_that_buffers_are_free(messenger);
            throw;
          }
        },
        how);
    for (const auto& each : thrown)
      CHECK_THAT(text_of(each), Catch::Contains("enough") || Catch::Contains("rank 0 is gone"));
  }
}

TEST_CASE("several threads send out of guarded memory at once", "[communicator][staging]") {
  for (const bool reads_memory : {false, true}) {
    Loopback how;
    how.reads_memory = reads_memory;
    rethrow_first(on_loopback(
        2,
        [](Messenger& messenger) {
          std::atomic<int> wrong = 0;
          std::vector<std::thread> threads;
          for (std::uint64_t thread = 0; thread < 2; ++thread)
            threads.emplace_back([&, thread] {
              try {
                for (std::uint64_t i = 0; i < 6; ++i)
                  exchange_staged(messenger, MemoryKind::guarded, MemoryKind::guarded, 700'001,
                                  2 * i + thread);
              } catch (...) {
                ++wrong;
              }
            });
          for (std::thread& each : threads) each.join();
          demand(wrong == 0, "wrong bytes");
          demand_that_buffers_are_free(messenger);
        },
        how));
  }
}

}  // namespace
}  // namespace motley
