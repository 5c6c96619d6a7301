// Collectives of a Program's groups between real ranks, compared with the plainest description of their results.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "hw/world/peers.hpp"
#include "tests/support/loopback.hpp"

using namespace motley;

namespace {

using Values = std::vector<float>;

// A Program of which only the group of all ranks is there.
Program program_of(int ranks) {
  Program program;
  Group group{GroupKind::data, {}};
  for (Rank rank : IdRange<Rank>(at(ranks))) group.ranks.push_back(rank);
  program.groups.add(group);
  return program;
}
constexpr GroupId kGroup{0};

// Calls the collective on every rank and returns what each rank then holds, indexed by rank.
std::vector<Values> run(CollectiveKind kind, std::vector<Values> values, ReduceOp reduce = ReduceOp::sum) {
  const int ranks = static_cast<int>(values.size());
  const Program program = program_of(ranks);
  const auto thrown = tests::on_loopback(ranks, [&](Messenger& messenger) {
    const Rank rank = messenger.rank();
    RealPeers peers(program, messenger);
    const Posted latest =
        peers.collect(kGroup, {kind, reduce}, values[at(rank)], {1.0 + rank.value(), rank}).latest;
    if (latest.rank != Rank(ranks - 1)) throw std::logic_error("the last to come was not known");
  });
  tests::rethrow_first(thrown);
  return values;
}

// Whole numbers, so that sums are exact in any order.
std::vector<Values> whole_numbers(int ranks, std::size_t count) {
  std::vector<Values> values(static_cast<std::size_t>(ranks), Values(count));
  for (std::size_t rank = 0; rank < values.size(); ++rank)
    for (std::size_t i = 0; i < count; ++i) values[rank][i] = static_cast<float>((i * 7 + rank * 13) % 101);
  return values;
}

// Elements [first, last) of part i.
std::pair<std::size_t, std::size_t> part_of(std::size_t count, std::size_t i, std::size_t ranks) {
  const std::size_t size = (count + ranks - 1) / ranks;
  return {std::min(count, size * i), std::min(count, size * (i + 1))};
}

Values sum_of(const std::vector<Values>& values) {
  Values sum(values[0].size());
  for (const Values& each : values)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += each[i];
  return sum;
}

bool same_part(const Values& left, const Values& right, std::size_t i, std::size_t ranks) {
  const auto [first, last] = part_of(left.size(), i, ranks);
  return std::equal(left.begin() + static_cast<std::ptrdiff_t>(first),
                    left.begin() + static_cast<std::ptrdiff_t>(last),
                    right.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace

TEST_CASE("reduce_scatter leaves each rank the sum of its part, all_reduce all of it") {
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  for (std::size_t count : {0U, 1U, 7U, 9U, 4097U, 300'001U}) {
    INFO(ranks << " ranks, " << count << " values");
    const auto brought = whole_numbers(ranks, count);
    const Values sum = sum_of(brought);
    const auto scattered = run(CollectiveKind::reduce_scatter, brought);
    for (std::size_t rank = 0; rank < scattered.size(); ++rank)
      REQUIRE(same_part(scattered[rank], sum, rank, scattered.size()));
    for (const Values& held : run(CollectiveKind::all_reduce, brought)) REQUIRE(held == sum);
  }
}

TEST_CASE("all_gather leaves every rank with every part, and reads nothing but each rank's own") {
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  for (std::size_t count : {0U, 1U, 7U, 9U, 4097U, 300'001U}) {
    INFO(ranks << " ranks, " << count << " values");
    const Values whole = whole_numbers(1, count)[0];
    std::vector<Values> brought(static_cast<std::size_t>(ranks), Values(count, std::nanf("")));
    for (std::size_t rank = 0; rank < brought.size(); ++rank) {
      const auto [first, last] = part_of(count, rank, brought.size());
      for (std::size_t i = first; i < last; ++i) brought[rank][i] = whole[i];
    }
    for (const Values& held : run(CollectiveKind::all_gather, brought)) REQUIRE(held == whole);
  }
}

TEST_CASE("all_to_all turns part j of rank i into part i of rank j") {
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  for (std::size_t each : {0U, 1U, 7U, 30'001U}) {
    INFO(ranks << " ranks, parts of " << each << " values");
    const auto n = static_cast<std::size_t>(ranks);
    const auto brought = whole_numbers(ranks, each * n);
    const auto held = run(CollectiveKind::all_to_all, brought);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t k = 0; k < each; ++k) REQUIRE(held[j][i * each + k] == brought[i][j * each + k]);
  }
}

TEST_CASE("members among others who are imagined end as if those had brought zeros, or what is filled in") {
  constexpr float kFilled = -5;
  const int ranks = GENERATE(2, 3, 5, 8);
  const auto n = static_cast<std::size_t>(ranks);
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                    CollectiveKind::all_gather, CollectiveKind::all_to_all})
    for (unsigned present = 1; present<1U << n; present += n> 5 ? 37 : 1) {
      const std::size_t count =
          n * (present % 3) * 11 + (kind == CollectiveKind::all_to_all ? 0 : present % 7);
      CAPTURE(ranks, name_of(kind), present, count);
      std::vector<Rank> members;
      auto values = whole_numbers(ranks, count), whole = values;
      const bool sums = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
      for (const Rank rank : IdRange<Rank>(n))
        if ((present >> at(rank) & 1U) != 0)
          members.push_back(rank);
        else
          whole[at(rank)].assign(count, sums ? 0 : kFilled);
      whole = run(kind, whole);
      const Program program = program_of(ranks);
      tests::rethrow_first(tests::on_loopback(ranks, [&](Messenger& messenger) {
        const Rank rank = messenger.rank();
        if ((present >> at(rank) & 1U) == 0) return;
        PresentPeers peers(program, messenger, members,
                           [&](std::span<float> part) { std::fill(part.begin(), part.end(), kFilled); });
        peers.collect(kGroup, {kind}, values[at(rank)], {1.0, rank});
      }));
      for (const Rank rank : members) {
        if (kind == CollectiveKind::reduce_scatter)
          REQUIRE(same_part(values[at(rank)], whole[at(rank)], at(rank), n));
        else
          REQUIRE(values[at(rank)] == whole[at(rank)]);
      }
    }
}

TEST_CASE("a reduce_scatter reduces each contribution exactly once, and finds the maximum and the minimum") {
  const int ranks = GENERATE(2, 3, 4, 5, 6, 7, 8, 9);
  for (std::size_t count : {1U, 2U, 9U, 10U, 1000U}) {
    INFO(ranks << " ranks, " << count << " values");
    // Contribution r is 4^r: the base-4 digits of a sum say how often it has each contribution. Exact up to 2^24.
    std::vector<Values> digits, places;
    float once = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      digits.emplace_back(count, static_cast<float>(1 << (2 * rank)));
      places.emplace_back(count, static_cast<float>(rank - 1));
      once += static_cast<float>(1 << (2 * rank));
    }
    const auto sums = run(CollectiveKind::reduce_scatter, digits);
    const auto largest = run(CollectiveKind::reduce_scatter, places, ReduceOp::maximum);
    const auto smallest = run(CollectiveKind::reduce_scatter, places, ReduceOp::minimum);
    for (std::size_t rank = 0; rank < sums.size(); ++rank) {
      REQUIRE(same_part(sums[rank], Values(count, once), rank, sums.size()));
      REQUIRE(same_part(largest[rank], Values(count, static_cast<float>(ranks - 2)), rank, sums.size()));
      REQUIRE(same_part(smallest[rank], Values(count, -1), rank, sums.size()));
    }
  }
}

TEST_CASE("reduce_scatter then all_gather gives the bits of all_reduce") {
  const int ranks = GENERATE(2, 3, 5, 8);
  for (std::size_t count : {1U, 7U, 4097U}) {
    INFO(ranks << " ranks, " << count << " values");
    std::vector<Values> brought;  // magnitudes differ, so that another order of summing gives other bits
    for (int rank = 0; rank < ranks; ++rank) {
      brought.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i)
        brought.back()[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1)) *
                            std::pow(10.0F, static_cast<float>((rank * 5 + static_cast<int>(i)) % 7));
    }
    const auto reduced = run(CollectiveKind::all_reduce, brought);
    const auto in_turn = run(CollectiveKind::all_gather, run(CollectiveKind::reduce_scatter, brought));
    for (std::size_t rank = 0; rank < reduced.size(); ++rank) {
      REQUIRE(in_turn[rank] == reduced[rank]);
      REQUIRE(reduced[rank] == reduced[0]);
    }
  }
}
