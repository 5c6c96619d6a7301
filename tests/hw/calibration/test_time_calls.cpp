// Calls of a communicator are timed whole: every operation, algorithm, path and size, and ranks agree.
#include <catch2/catch.hpp>
#include <mutex>

#include "hw/calibration/time_calls.hpp"
#include "tests/support/loopback.hpp"

using namespace motley;

TEST_CASE("every call that the group can do is timed, by the path that is allowed where it can go",
          "[calibration]") {
  TimeCallsOptions options;
  options.kinds = {std::nullopt, CollectiveKind::all_reduce, CollectiveKind::all_to_all};
  options.algorithms = {CollectiveAlgorithm::ring, CollectiveAlgorithm::recursive, CollectiveAlgorithm::flat};
  options.paths = {Path::shm, Path::tcp};
  options.bytes = {0, 10, 1'000'000};
  options.memories = {MemoryKind::host, MemoryKind::guarded};
  options.seconds_a_time = 1e-4;
  options.rounds = 3;
  for (const int ranks : {2, 3}) {
    std::mutex mutex;
    std::vector<std::vector<TimedCall>> timed(at(ranks));
    tests::rethrow_first(tests::on_loopback(ranks, [&](Messenger& messenger) {
      std::vector<Rank> everyone;
      for (int rank = 0; rank < ranks; ++rank) everyone.emplace_back(rank);
      Communicator group(messenger, 1, everyone);
      auto mine = time_calls(group, options);
      const std::lock_guard lock(mutex);
      timed[at(messenger.rank().value())] = std::move(mine);
    }));
    // Messages once; an all_reduce by ring and by recursive; an all_to_all by flat alone.
    REQUIRE(timed[0].size() == (1 + 2 + 1) * options.paths.size() * options.bytes.size() * 2);
    for (std::size_t i = 0; i < timed[0].size(); ++i) {
      const TimedCall& first = timed[0][i];
      CAPTURE(i, ranks, first.bytes, name_of(first.path));
      CHECK(first.seconds > 0);
      CHECK(first.cpu_s >= 0);
      const std::size_t asked = options.bytes[i / 2 % options.bytes.size()];
      CHECK(first.bytes >= asked);
      CHECK(first.bytes < asked + sizeof(float) * at(ranks));
      CHECK(first.memory == options.memories[i % 2]);
      for (const auto& other : timed) CHECK(other[i].seconds == first.seconds);
      const bool from_memory = first.path == Path::shm && first.bytes > 500'000;
      CHECK(first.taken.contains(Path::shm) == from_memory);
      CHECK(first.taken.contains(Path::tcp) == !from_memory);
    }
  }
}
