// Collectives over real transports: the same results, bit for bit, as the steps say.
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <tuple>

#include "hw/communicator/communicator.hpp"
#include "models/base/index.hpp"
#include "tests/support/collective_cases.hpp"
#include "tests/support/loopback.hpp"

namespace motley {
namespace {

using namespace tests;

std::vector<Bytes> performed(const CollectiveCase& test, std::vector<Bytes> values,
                             const tests::Loopback& how) {
  tests::rethrow_first(tests::on_loopback(
      test.ranks,
      [&](Messenger& messenger) {
        Communicator group(messenger, 7, everyone(test.ranks), test.per_node);
        group.run(test.call, values[at(messenger.rank().value())],
                  {1.0 + messenger.rank().value(), messenger.rank()});
      },
      how));
  return values;
}

void check_case(const CollectiveCase& test, const tests::Loopback& how, std::uint64_t seed) {
  std::vector<Bytes> values;
  for (int rank = 0; rank < test.ranks; ++rank)
    values.push_back(small_numbers(test.call.element, test.count, seed + at(rank)));
  std::vector<Bytes> wanted = expected(test, values);
  std::vector<Bytes> results = performed(test, std::move(values), how);
  CAPTURE(name_of(test.call.kind), name_of(test.call.algorithm), name_of(test.call.element), test.ranks,
          test.per_node, test.count, how.reads_memory);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto mine = defined(test, results[i], i), right = defined(test, wanted[i], i);
    REQUIRE(std::equal(mine.begin(), mine.end(), right.begin(), right.end()));
  }
}

TEST_CASE("every collective ends with what its kind says, over every path and by every algorithm",
          "[communicator][collective]") {
  std::uint64_t seed = 1;
  for (const bool reads_memory : {false, true})
    for (const CollectiveKind kind : kKinds)
      for (const auto& [ranks, per_node] : {std::pair(1, 1), {2, 1}, {3, 1}, {4, 2}, {5, 1}, {8, 4}})
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, std::size_t{37}, std::size_t{70'001}}) {
          CollectiveCase test{{.kind = kind}, ranks, per_node, kind == CollectiveKind::barrier ? 0 : count};
          if (is_rooted(kind)) test.call.root = static_cast<int>(seed / 100 % at(ranks));
          if (kind == CollectiveKind::all_to_all) test.count = count / at(ranks) * at(ranks);
          for (const CollectiveAlgorithm algorithm : algorithms_of(test)) {
            test.call.algorithm = algorithm;
            tests::Loopback how;
            how.reads_memory = reads_memory;
            check_case(test, how, seed += 100);
          }
        }
}

TEST_CASE("collectives of every format are exact on small numbers", "[communicator][collective]") {
  std::uint64_t seed = 5;
  for (const ElementType element : every<ElementType>())
    for (const ReduceOp reduce : every<ReduceOp>())
      for (const CollectiveKind kind :
           {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::reduce})
        check_case(
            {{.kind = kind, .element = element, .reduce = reduce, .algorithm = CollectiveAlgorithm::ring},
             3,
             1,
             1'001},
            {}, seed += 10);
}

TEST_CASE("segments change no bit, and large messages go over several connections",
          "[communicator][collective]") {
  for (const std::size_t count :
       {std::size_t{131'072} * 2, std::size_t{131'072} * 2 + 1, std::size_t{900'001}})
    for (const int streams : {1, 3})
      for (const bool reads_memory : {false, true}) {
        tests::Loopback how;
        how.streams = streams;
        how.reads_memory = reads_memory;
        for (const CollectiveAlgorithm algorithm : algorithms_of({{}, 3, 1, count}))
          check_case({{.algorithm = algorithm}, 3, 1, count}, how, count);
      }
}

TEST_CASE("the messages that are sent are those of the steps, and every byte goes once",
          "[communicator][collective]") {
  for (const CollectiveKind kind : kKinds)
    for (int ranks = 1; ranks <= 9; ++ranks)
      for (int per_node = 1; per_node <= ranks; ++per_node) {
        if (ranks % per_node != 0) continue;
        // Every algorithm cuts this into equal chunks.
        CollectiveCase test{
            {.kind = kind}, ranks, per_node, kind == CollectiveKind::barrier ? 0 : at(ranks) * 48};
        if (is_rooted(kind)) test.call.root = ranks / 2;
        for (const CollectiveAlgorithm algorithm : algorithms_of(test)) {
          test.call.algorithm = algorithm;
          std::mutex mutex;
          std::map<std::tuple<int, int, std::uint64_t>, std::size_t>
              sent;  // bytes by sender, receiver, message
          tests::Loopback how;
          how.on_send = [&](Rank from, const SendOrder& order, Path) {
            const std::lock_guard lock(mutex);
            const std::tuple message(from.value(), order.to.value(), order.key.part);
            tests::demand(sent.emplace(message, bytes_in(order.pieces)).second, "a message was sent twice");
          };
          check_case(test, how, 3);
          GroupShape shape;
          shape.rank_count = ranks;
          shape.per_node = per_node;
          const CollectiveSteps steps = expand(CollectiveTask(kind, test.call.root), algorithm, shape);
          std::map<std::tuple<int, int, std::uint64_t>, std::size_t> listed;
          for (const CollectiveMessage& message : messages(steps))
            listed[{message.from, message.to, at(message.round)}] = static_cast<std::size_t>(
                message.chunks * static_cast<double>(test.count * sizeof(float)) / steps.chunks);
          CAPTURE(name_of(kind), name_of(algorithm), ranks, per_node);
          REQUIRE(sent == listed);
        }
      }
}

TEST_CASE("random sums have the same bits over every path, for one algorithm", "[communicator][collective]") {
  std::mt19937_64 random(11);
  for (const CollectiveAlgorithm algorithm : algorithms_of({{}, 4, 2, 1})) {
    const CollectiveCase test{{.algorithm = algorithm}, 4, 2, 20'001};
    std::vector<Bytes> values;
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<float> numbers(test.count);
      for (float& each : numbers)
        each = static_cast<float>(static_cast<double>(random() % 2'000'003) / 7.0 - 1e5);
      const auto bytes = std::as_bytes(std::span(numbers));
      values.emplace_back(bytes.begin(), bytes.end());
    }
    tests::Loopback memory, streams;
    memory.reads_memory = true;
    streams.streams = 2;
    const auto first = performed(test, values, {});
    REQUIRE(performed(test, values, memory) == first);
    REQUIRE(performed(test, values, streams) == first);
    for (const Bytes& each : first) REQUIRE(each == first[0]);
  }
}

TEST_CASE("the last member to be ready is known to all", "[communicator][collective]") {
  for (const bool reads_memory : {false, true}) {
    tests::Loopback how;
    how.reads_memory = reads_memory;
    tests::rethrow_first(tests::on_loopback(
        3,
        [&](Messenger& messenger) {
          Communicator group(messenger, 1, everyone(3));
          std::vector<float> values(90'000);
          const Posted latest = group.run({}, std::as_writable_bytes(std::span(values)),
                                          {messenger.rank() == Rank(1) ? 9.0 : 2.0, messenger.rank()});
          tests::demand(latest.at_s == 9.0);
          PathSet expected;
          expected.add(how.reads_memory ? Path::shm : Path::tcp);
          const Request again = group.start({}, std::as_writable_bytes(std::span(values)));
          group.wait(again);
          tests::demand(messenger.paths_of(again) == expected, "the path of the bytes");
          tests::demand(latest.rank == Rank(1));
        },
        how));
  }
}

TEST_CASE("groups are split by colour and ordered by key", "[communicator]") {
  tests::rethrow_first(tests::on_loopback(6, [](Messenger& messenger) {
    Communicator world(messenger, 1, everyone(6));
    const int place = world.place();
    const auto mine = world.split(place == 5 ? -1 : place % 2, -place);
    if (place == 5) {
      tests::demand(mine == nullptr);
      return;
    }
    tests::demand(mine->size() == (place % 2 == 0 ? 3 : 2));
    tests::demand(mine->members().front() == Rank(place % 2 == 0 ? 4 : 3));
    std::int64_t sum = place;
    mine->run({.element = ElementType::int64}, std::as_writable_bytes(std::span(&sum, 1)));
    tests::demand(sum == (place % 2 == 0 ? 6 : 4));
  }));
}

TEST_CASE("parts of any size are exchanged", "[communicator][collective]") {
  for (const bool reads_memory : {false, true}) {
    tests::Loopback how;
    how.reads_memory = reads_memory;
    tests::rethrow_first(tests::on_loopback(
        4,
        [](Messenger& messenger) {
          Communicator group(messenger, 1, everyone(4));
          const auto size = [](int from, int to) {
            return at(from * 7919 + to * 104'729) % 60'000 * at(to != 2);
          };
          const int me = group.place();
          std::vector<Bytes> out, in;
          for (int i = 0; i < 4; ++i) {
            out.emplace_back(size(me, i), std::byte(16 * me + i));
            in.emplace_back(size(i, me));
          }
          const std::vector<std::span<const std::byte>> outgoing(out.begin(), out.end());
          group.wait(group.start_exchange(outgoing, {in.begin(), in.end()}));
          for (int i = 0; i < 4; ++i) tests::demand(in[at(i)] == Bytes(size(i, me), std::byte(16 * i + me)));
        },
        how));
  }
}

}  // namespace
}  // namespace motley
