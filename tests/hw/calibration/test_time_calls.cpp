// Calls of a communicator are timed whole: every operation, algorithm, path and size, and ranks agree.
#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
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

namespace {

// What members of other nodes get of each other in a call, by the steps of the algorithm.
double crossing_bytes(CollectiveKind kind, CollectiveAlgorithm algorithm, int hosts, int each,
                      std::size_t bytes) {
  GroupShape shape;
  shape.rank_count = hosts * each;
  shape.per_node = each;
  const CollectiveSteps steps = expand(kind, algorithm, shape);
  double chunks = 0;
  for (const CollectiveMessage& message : messages(steps))
    if (message.from / each != message.to / each) chunks += message.chunks;
  return steps.share(chunks) * static_cast<double>(bytes);
}

}  // namespace

TEST_CASE("a call sends between hosts what the steps of its algorithm say, and messages go near and far",
          "[calibration]") {
  for (const auto& [hosts, per_host] : {std::pair(2, 2), std::pair(2, 3), std::pair(3, 2)}) {
    const int each = per_host;  // lambdas capture no part of a pair
    const int ranks = hosts * each;
    TimeCallsOptions options;
    options.kinds = {std::nullopt, CollectiveKind::all_reduce, CollectiveKind::all_gather,
                     CollectiveKind::reduce_scatter, CollectiveKind::all_to_all};
    options.algorithms = {CollectiveAlgorithm::ring,      CollectiveAlgorithm::double_binary_tree,
                          CollectiveAlgorithm::recursive, CollectiveAlgorithm::hierarchical,
                          CollectiveAlgorithm::flat,      CollectiveAlgorithm::automatic};
    options.paths = {Path::tcp};
    options.bytes = {std::size_t{sizeof(float) * 36 * 100}};  // divides into all chunks
    options.seconds_a_time = 0;
    options.rounds = 2;
    for (int rank = 0; rank < ranks; ++rank) options.hosts.push_back(std::to_string(rank / each));
    std::deque<std::atomic<std::uint64_t>> sent(at(ranks));
    tests::Loopback how;
    how.on_send = [&](Rank from, const SendOrder& order, Path) {
      if (from.value() / each == order.to.value() / each) return;
      for (const auto& piece : order.pieces) sent[at(from.value())] += piece.size();
    };
    std::mutex mutex;
    std::vector<TimedCall> timed;
    tests::rethrow_first(tests::on_loopback(
        ranks,
        [&](Messenger& messenger) {
          std::vector<Rank> everyone;
          for (int rank = 0; rank < ranks; ++rank) everyone.emplace_back(rank);
          const auto choose = [](CollectiveKind, std::size_t) { return CollectiveAlgorithm::hierarchical; };
          Communicator group(messenger, 1, everyone, each, choose);
          TimeCallsOptions mine = options;
          mine.sent_between_hosts = [&] { return sent[at(messenger.rank().value())].load(); };
          auto calls = time_calls(group, mine);
          const std::lock_guard lock(mutex);
          if (messenger.rank() == Rank(0)) timed = std::move(calls);
        },
        how));
    // A message near and one far; an all_reduce by four algorithms, all_gather and reduce_scatter by three, and an
    // all_to_all by two, each and by choice.
    REQUIRE(timed.size() == 2 + 5 + 4 + 4 + 3);
    CHECK((timed[0].peer == 1 && !timed[0].leaves_host && timed[0].between_hosts_bytes == 0));
    CHECK((timed[1].peer == each && timed[1].leaves_host));
    CHECK(timed[1].between_hosts_bytes == static_cast<double>(timed[1].bytes));
    for (std::size_t i = 2; i < timed.size(); ++i) {
      const TimedCall& call = timed[i];
      CAPTURE(hosts, each, name_of(*call.kind), name_of(call.algorithm), name_of(call.chosen));
      CHECK((call.chosen == call.algorithm || call.algorithm == CollectiveAlgorithm::automatic));
      CHECK(call.between_hosts_bytes.value() ==
            Approx(crossing_bytes(*call.kind, call.chosen, hosts, each, call.bytes)));
    }
  }
}
