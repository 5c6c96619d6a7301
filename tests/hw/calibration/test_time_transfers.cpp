// Transfers among ranks are timed whole: every kind, every size, on each rank the same.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>

#include "hw/calibration/time_transfers.hpp"
#include "tests/support/loopback.hpp"

using namespace motley;

namespace {

using Timed = std::vector<TimedTransfers>;

std::vector<Timed> time_on(int ranks, const TransferTimeOptions& options) {
  std::vector<Timed> timed(static_cast<std::size_t>(ranks));
  tests::rethrow_first(tests::on_loopback(ranks, [&](Messenger& messenger) {
    std::vector<Rank> everyone;
    for (const Rank rank : IdRange<Rank>(at(ranks))) everyone.push_back(rank);
    Communicator group(messenger, 1, everyone);
    timed[at(messenger.rank())] = time_transfers(group, options);
  }));
  return timed;
}

}  // namespace

TEST_CASE("every kind and size of a transfer is timed in every round, and ranks agree", "[calibration]") {
  for (const int ranks : {2, 3, 4}) {
    TransferTimeOptions options;
    options.bytes = {0, 4, 20, 4096, 100'000};
    options.rounds = 3;
    options.seconds_a_time = 1e-4;
    const std::vector<Timed> timed = time_on(ranks, options);
    REQUIRE(timed[0].size() == 5 * options.bytes.size());
    for (const Timed& each : timed) {
      REQUIRE(each.size() == timed[0].size());
      for (std::size_t i = 0; i < each.size(); ++i) {
        CHECK(each[i].kind == timed[0][i].kind);
        CHECK(each[i].bytes == options.bytes[i % options.bytes.size()]);
        CHECK_FALSE(each[i].beside_compute);
        CHECK(each[i].times == timed[0][i].times);
        REQUIRE(each[i].times.size() == 3);
        for (const double seconds : each[i].times) CHECK(seconds > 0);
      }
    }
  }
}

TEST_CASE("transfers are timed beside a compute where there is one", "[calibration]") {
  std::atomic<std::int64_t> computed = 0;
  std::atomic<int> under_way = 0, most_under_way = 0;
  TransferTimeOptions options;
  options.bytes = {64};
  options.rounds = 2;
  options.seconds_a_time = 1e-4;
  options.compute = [&] {
    most_under_way = std::max(most_under_way.load(), ++under_way);
    ++computed;
    --under_way;
  };
  const std::vector<Timed> timed = time_on(2, options);
  REQUIRE(timed[0].size() == 2 * 5);
  for (std::size_t i = 0; i < timed[0].size(); ++i) {
    CHECK(timed[0][i].beside_compute == (i >= 5));
    CHECK(timed[0][i].times.size() == 2);
  }
  CHECK(computed > 0);
  CHECK(most_under_way <= 2);  // one a rank
}

TEST_CASE("a kind of transfer ends with the first size that takes too long", "[calibration]") {
  TransferTimeOptions options;
  options.bytes = {0, 64, 128};
  options.rounds = 1;
  options.longest_s = 0;
  const std::vector<Timed> timed = time_on(2, options);
  REQUIRE(timed[0].size() == 5);
  for (const TimedTransfers& each : timed[0]) CHECK(each.bytes == 0);
}

TEST_CASE("sizes of transfers go from none to 64 MiB, each larger than the one before", "[calibration]") {
  const std::vector<std::int64_t> bytes = TransferTimeOptions::standard_transfer_bytes();
  CHECK(bytes.front() == 0);
  CHECK(bytes.back() == 64LL << 20);
  CHECK(std::is_sorted(bytes.begin(), bytes.end()));
  CHECK(bytes.size() > 8);
}
