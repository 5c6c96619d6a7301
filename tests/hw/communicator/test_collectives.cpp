// Collectives over real transports: the same results, bit for bit, as the steps say.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>

#include "hw/communicator/communicator.hpp"
#include "models/base/index.hpp"
#include "tests/support/collective_cases.hpp"
#include "tests/support/held_bytes.hpp"
#include "tests/support/loopback.hpp"
#include "tests/support/sanitized.hpp"

namespace motley {
namespace {

using namespace tests;

using PerMember = std::vector<Bytes>;  // by member

// The context of a case among those of one run.
constexpr std::uint64_t kFirstContext = 7;

// In which memory the payloads lie: of rank i that of number i, from the first again behind the last.
using MemoryKinds = std::vector<MemoryKind>;
const std::vector<MemoryKinds> kHostMemory = {{MemoryKind::host}};
const std::vector<MemoryKinds> kEveryMemory = {
    {MemoryKind::host}, {MemoryKind::guarded}, {MemoryKind::guarded, MemoryKind::host, MemoryKind::pinned}};

// Performs all cases, which have one number of ranks, over one set of connections: each connection that ends keeps a
// port busy for a minute. What each case ends with is returned for the first kinds of memory, then for the next ones.
std::vector<PerMember> performed(const std::vector<CollectiveCase>& cases, std::vector<PerMember> values,
                                 const tests::Loopback& how,
                                 const std::vector<MemoryKinds>& memories = kHostMemory) {
  if (cases.empty()) return values;
  std::vector<PerMember> results;
  for (std::size_t i = 0; i < memories.size(); ++i)
    results.insert(results.end(), values.begin(), values.end());
  tests::rethrow_first(tests::on_loopback(
      cases[0].ranks,
      [&](Messenger& messenger) {
        const std::size_t rank = at(messenger.rank().value());
        for (std::size_t i = 0; i < results.size(); ++i) {
          const CollectiveCase& test = cases[i % cases.size()];
          const MemoryKinds& kinds = memories[i / cases.size()];
          const tests::HeldBytes held(messenger, kinds[rank % kinds.size()], results[i][rank]);
          Communicator group(messenger, kFirstContext + i, everyone(test.ranks), test.per_node);
          group.run(test.call, held.payload(), {1.0 + messenger.rank().value(), messenger.rank()});
          results[i][rank] = held.contents();
        }
        tests::demand(messenger.staging_buffers() == 0, "a buffer is not free again");
      },
      how));
  return results;
}
PerMember performed(const CollectiveCase& test, const PerMember& values, const tests::Loopback& how) {
  return performed(std::vector{test}, std::vector<PerMember>{values}, how)[0];
}

void check_cases(const std::vector<CollectiveCase>& cases, const tests::Loopback& how, std::uint64_t seed,
                 const std::vector<MemoryKinds>& memories = kEveryMemory) {
  std::vector<PerMember> values, wanted;
  for (const CollectiveCase& test : cases) {
    PerMember brought;
    for (int rank = 0; rank < test.ranks; ++rank)
      brought.push_back(small_numbers(test.call.element, test.count, seed += 7));
    values.push_back(brought);
    wanted.push_back(expected(test, std::move(brought)));
  }
  std::vector<PerMember> results = performed(cases, std::move(values), how, memories);
  for (std::size_t r = 0; r < results.size(); ++r) {
    const std::size_t c = r % cases.size();
    const CollectiveCase& test = cases[c];
    CAPTURE(name_of(test.call.kind), name_of(test.call.algorithm), name_of(test.call.element), test.ranks,
            test.per_node, test.count, how.reads_memory, how.copies_twice.value_or(false),
            name_of(memories[r / cases.size()][0]));
    for (std::size_t i = 0; i < results[r].size(); ++i) {
      const auto mine = defined(test, results[r][i], i), right = defined(test, wanted[c][i], i);
      REQUIRE(std::equal(mine.begin(), mine.end(), right.begin(), right.end()));
    }
  }
}

// The case by every algorithm that does it.
void add_by_every_algorithm(const CollectiveCase& test, std::vector<CollectiveCase>& cases) {
  for (const CollectiveAlgorithm algorithm : algorithms_of(test)) {
    cases.push_back(test);
    cases.back().call.algorithm = algorithm;
  }
}

TEST_CASE("every collective ends with what its kind says, over every path and by every algorithm",
          "[communicator][collective][slow]") {
  for (const tests::Loopback& how : tests::every_way())
    for (const auto& [ranks, per_node] : {std::pair(1, 1), {2, 1}, {3, 1}, {4, 2}, {5, 1}, {8, 4}}) {
      if (tests::kSanitized && ranks != 4) continue;
      std::vector<CollectiveCase> cases;
      for (const CollectiveKind kind : kKinds)
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, std::size_t{37}, std::size_t{70'001}}) {
          CollectiveCase test{{.kind = kind}, ranks, per_node, kind == CollectiveKind::barrier ? 0 : count};
          if (is_rooted(kind)) test.call.root = static_cast<int>(cases.size() % at(ranks));
          if (kind == CollectiveKind::all_to_all) test.count = count / at(ranks) * at(ranks);
          add_by_every_algorithm(test, cases);
        }
      check_cases(cases, how, 1);
    }
}

// Hidden: it takes a minute.
TEST_CASE("collectives of 64 MiB end with what their kinds say, over every path", "[.][large]") {
  constexpr std::size_t kCount = (std::size_t{64} << 20U) / sizeof(double);
  for (const tests::Loopback& how : tests::every_way())
    for (const CollectiveKind kind : kKinds)
      for (const int ranks : {2, 5}) {
        if (kind == CollectiveKind::barrier) continue;
        CollectiveCase test{{.kind = kind, .element = ElementType::fp64}, ranks, 1, kCount + 1};
        if (is_rooted(kind)) test.call.root = ranks - 1;
        if (kind == CollectiveKind::all_to_all) test.count = kCount / at(ranks) * at(ranks);
        std::vector<CollectiveCase> cases;
        add_by_every_algorithm(test, cases);
        if (ranks > 2) cases.resize(1);
        for (const CollectiveCase& each : cases) check_cases({each}, how, 13, kHostMemory);
      }
}

TEST_CASE("collectives of every format are exact on small numbers", "[communicator][collective]") {
  std::vector<CollectiveCase> cases;
  for (const ElementType element : every<ElementType>())
    for (const ReduceOp reduce : every<ReduceOp>())
      for (const CollectiveKind kind :
           {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::reduce}) {
        CollectiveCase test{{.kind = kind, .element = element, .reduce = reduce}, 3, 1, 1'001};
        test.call.algorithm = CollectiveAlgorithm::ring;
        cases.push_back(test);
      }
  check_cases(cases, {}, 5);
}

TEST_CASE("segments change no bit, and large messages go over several connections",
          "[communicator][collective][slow]") {
  for (const int streams : {1, 3})
    for (tests::Loopback how : tests::every_way()) {
      if (tests::kSanitized && streams == 1) continue;
      std::vector<CollectiveCase> cases;
      for (const std::size_t count :
           {std::size_t{131'072} * 2, std::size_t{131'072} * 2 + 1, std::size_t{900'001}})
        if (!tests::kSanitized || count == 262'145) add_by_every_algorithm({{}, 3, 1, count}, cases);
      how.streams = streams;
      check_cases(cases, how, 9);
    }
}

// Bytes by context, sender, receiver and number of the message.
using Sent = std::map<std::tuple<std::uint64_t, int, int, std::uint64_t>, std::size_t>;

void add_listed(const CollectiveCase& test, std::uint64_t context, Sent& listed) {
  GroupShape shape;
  shape.rank_count = test.ranks;
  shape.per_node = test.per_node;
  const CollectiveSteps steps =
      expand(CollectiveTask(test.call.kind, test.call.root), test.call.algorithm, shape);
  for (const CollectiveMessage& message : messages(steps))
    listed[{context, message.from, message.to, at(message.round)}] = static_cast<std::size_t>(
        message.chunks * static_cast<double>(test.count * sizeof(float)) / steps.chunks);
}

TEST_CASE("the messages that are sent are those of the steps, and every byte goes once",
          "[communicator][collective]") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    std::vector<CollectiveCase> cases;
    for (const CollectiveKind kind : kKinds)
      for (int per_node = 1; per_node <= ranks; ++per_node) {
        if (ranks % per_node != 0) continue;
        // Every algorithm cuts this into equal chunks.
        CollectiveCase test{
            {.kind = kind}, ranks, per_node, kind == CollectiveKind::barrier ? 0 : at(ranks) * 48};
        if (is_rooted(kind)) test.call.root = ranks / 2;
        add_by_every_algorithm(test, cases);
      }
    std::mutex mutex;
    Sent sent, listed;
    tests::Loopback how;
    how.on_send = [&](Rank from, const SendOrder& order, Path) {
      const std::lock_guard lock(mutex);
      const std::tuple message(order.key.context, from.value(), order.to.value(), order.key.part);
      tests::demand(sent.emplace(message, bytes_in(order.pieces)).second, "a message was sent twice");
    };
    const std::vector<MemoryKinds> memories = {{MemoryKind::host}, {MemoryKind::guarded}};
    check_cases(cases, how, 3, memories);
    for (std::size_t i = 0; i < memories.size() * cases.size(); ++i)
      add_listed(cases[i % cases.size()], kFirstContext + i, listed);
    CAPTURE(ranks);
    REQUIRE(sent == listed);
  }
}

TEST_CASE("random sums have the same bits over every path and kind of memory, for one algorithm",
          "[communicator][collective]") {
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
    std::vector<tests::Loopback> ways = tests::every_way();
    ways.push_back({.streams = 2});
    const auto first = performed(test, values, {});
    for (const tests::Loopback& how : ways)
      for (const PerMember& each : performed({test}, {values}, how, kEveryMemory)) REQUIRE(each == first);
    for (const Bytes& each : first) REQUIRE(each == first[0]);
  }
}

// What each member holds after the steps, performed by hand: what a round sends is what was there before it, and
// contributions come in the order of their senders' places.
std::vector<Bytes> by_hand(const CollectiveCase& test, std::vector<Bytes> values) {
  GroupShape shape;
  shape.rank_count = test.ranks;
  shape.per_node = test.per_node;
  CollectiveSteps steps = expand(test.call.kind, test.call.algorithm, shape);
  std::stable_sort(steps.steps.begin(), steps.steps.end(),
                   [](const CollectiveStep& a, const CollectiveStep& b) {
                     return std::pair(a.round, a.from) < std::pair(b.round, b.from);
                   });
  const std::size_t width = element_bytes(test.call.element);
  const auto chunk_of = [&](std::vector<Bytes>& all, int member, int chunk) {
    return part_of(all[at(member)], width, at(chunk), at(steps.chunks));
  };
  std::vector<Bytes> before;
  int round = -1;
  for (const CollectiveStep& step : steps.steps) {
    if (step.round != round) before = values;
    round = step.round;
    const auto from = chunk_of(before, step.from, step.chunk), into = chunk_of(values, step.to, step.chunk);
    if (step.reduce)
      reduce_into(test.call.element, test.call.reduce, into, from);
    else
      std::copy(from.begin(), from.end(), into.begin());
  }
  return values;
}

TEST_CASE("sums are done in the order of the steps, bit for bit", "[communicator][collective]") {
  std::mt19937_64 random(12);
  for (const auto& [ranks, per_node] : {std::pair(3, 1), {4, 2}, {6, 3}, {7, 1}})
    for (const CollectiveAlgorithm algorithm : algorithms_of({{}, ranks, per_node, 1})) {
      const CollectiveCase test{{.algorithm = algorithm}, ranks, per_node, 2'001};
      std::vector<Bytes> values;
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<float> numbers(test.count);
        for (float& each : numbers)
          each = static_cast<float>(static_cast<double>(random() % 2'000'003) / 7.0 - 1e5);
        const auto bytes = std::as_bytes(std::span(numbers));
        values.emplace_back(bytes.begin(), bytes.end());
      }
      CAPTURE(name_of(algorithm), ranks, per_node);
      const auto wanted = by_hand(test, values);
      CHECK((performed(test, std::move(values), {}) == wanted));
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

TEST_CASE("a split tells every member of each once, as an all_gather does", "[communicator]") {
  constexpr int kRanks = 4;
  std::atomic<int> messages = 0;
  tests::Loopback how;
  how.on_send = [&](Rank, const SendOrder& order, Path) {
    ++messages;
    tests::demand(bytes_in(order.pieces) == 8, "a message of another size than a colour and a key");
  };
  tests::rethrow_first(tests::on_loopback(
      kRanks,
      [](Messenger& messenger) {
        tests::demand(Communicator(messenger, 1, everyone(kRanks)).split(-1, 0) == nullptr);
      },
      how));
  CHECK(messages == kRanks * (kRanks - 1));
}

TEST_CASE("parts of any size are exchanged, out of every kind of memory", "[communicator][collective]") {
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
          for (const MemoryKind kind : every<MemoryKind>()) {
            std::vector<std::unique_ptr<tests::HeldBytes>> out, in;
            std::vector<std::span<const std::byte>> outgoing;
            std::vector<std::span<std::byte>> incoming;
            for (int i = 0; i < 4; ++i) {
              out.push_back(std::make_unique<tests::HeldBytes>(messenger, kind,
                                                               Bytes(size(me, i), std::byte(16 * me + i))));
              in.push_back(std::make_unique<tests::HeldBytes>(messenger, kind, Bytes(size(i, me))));
              outgoing.emplace_back(out.back()->payload());
              incoming.push_back(in.back()->payload());
            }
            group.wait(group.start_exchange(outgoing, incoming));
            for (int i = 0; i < 4; ++i)
              tests::demand(in[at(i)]->contents() == Bytes(size(i, me), std::byte(16 * i + me)));
          }
        },
        how));
  }
}

// A rank that computes calls nothing for long: what others wait for has left before it begins.
TEST_CASE("once a collective is done on a rank, the others can end without it",
          "[communicator][collective]") {
  constexpr std::array<std::size_t, 3> kSizes = {30, 3'000, 300'000};  // elements, for 2, 3 and 5 ranks
  for (const bool reads_memory : {false, true})
    for (const int ranks : {2, 3, 5}) {
      std::array<std::atomic<int>, kKinds.size() * kSizes.size()> ended{};
      tests::rethrow_first(tests::on_loopback(
          ranks,
          [&](Messenger& messenger) {
            std::vector<float> values(kSizes.back());
            for (std::size_t i = 0; i < ended.size(); ++i) {
              Communicator group(messenger, kFirstContext + i, everyone(ranks));
              const CollectiveKind kind = kKinds[i % kKinds.size()];
              const std::size_t count = kind == CollectiveKind::barrier ? 0 : kSizes[i / kKinds.size()];
              group.run({.kind = kind}, std::as_writable_bytes(std::span(values).first(count)));
              ++ended[i];
              for (int wait = 0; wait < 20'000 && ended[i] < ranks; ++wait)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              tests::demand(ended[i] == ranks, "a rank waits for one that has done its part");
            }
          },
          {.reads_memory = reads_memory}));
    }
}

}  // namespace
}  // namespace motley
