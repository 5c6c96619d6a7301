// Clocks of hosts that are apart by seconds and gain on each other, over ways that take any time: what is read of them
// is true within what it says.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "hw/launch/clock.hpp"
#include "hw/launch/rendezvous.hpp"
#include "hw/world/shared_times.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;

namespace {

// Another host's clock by the clock of rank 0.
struct OtherClock {
  double offset_s, gain;
  double at(double leader_s) const { return (leader_s - offset_s) * (1 + gain); }
};

// Two ways whose times are drawn anew for each message.
struct Ways {
  std::mt19937& random;
  double least_there_s, least_back_s, mean_s;
  double take_s(double least_s) const {
    return least_s + std::exponential_distribution<double>(1 / mean_s)(random);
  }
};

ClockReading read(const OtherClock& clock, const Ways& ways, double leader_s) {
  std::vector<ClockExchange> exchanges;
  for (int i = 0; i < 40; ++i) {
    const double came_s = leader_s + ways.take_s(ways.least_there_s);
    const double answered_s = came_s + 1e-6;
    const double received_s = answered_s + ways.take_s(ways.least_back_s);
    exchanges.push_back({clock.at(leader_s), came_s, answered_s, clock.at(received_s)});
    leader_s = received_s;
  }
  return read_clock(exchanges);
}

TraceEvent event_of(Rank rank) {
  TraceEvent event;
  event.step.rank = rank;
  event.begin_s = 1;
  event.matched_s = 2;
  event.end_s = 3;
  return event;
}

double drawn(std::mt19937& random, double least, double most) {
  return std::uniform_real_distribution<double>(least, most)(random);
}

}  // namespace

TEST_CASE("clocks that differ by seconds and drift are known within the uncertainty that is told") {
  std::mt19937 random(1);
  double widest_s = 0;
  for (int draw = 0; draw < 2000; ++draw) {
    const OtherClock clock{drawn(random, -5, 5), drawn(random, -1e-4, 1e-4)};
    const double least_s = drawn(random, 5e-6, 2e-4);
    const bool alike = draw % 2 == 0;
    const Ways ways{random, least_s, alike ? least_s : drawn(random, 5e-6, 2e-3), drawn(random, 1e-6, 1e-3)};
    const double begin_s = drawn(random, 0, 1e5), length_s = drawn(random, 0.1, 100);
    SharedClock shared;
    shared.before = read(clock, ways, begin_s);
    const double zero_s = begin_s + 1;  // the zero by the clock of rank 0
    shared.zero_s = zero_s - shared.before.offset_s;
    shared.after = read(clock, ways, begin_s + 1 + length_s);
    CAPTURE(draw, clock.offset_s, clock.gain, shared.uncertainty_s());
    for (int i = 0; i <= 10; ++i) {
      const double true_s = length_s * i / 10;  // since the zero
      const double seconds = clock.at(zero_s + true_s) - shared.zero_s;
      REQUIRE(std::fabs(shared.shared_s(seconds) - true_s) <= shared.uncertainty_s());
    }
    // No less than the two ways at their fastest allow, and not much more.
    const double at_best_s = (ways.least_there_s + ways.least_back_s) / 2;
    REQUIRE(shared.uncertainty_s() >= 0.99 * at_best_s);
    widest_s = std::max(widest_s, shared.uncertainty_s() - at_best_s);
  }
  REQUIRE(widest_s < 1e-3);
}

TEST_CASE("ways of unlike length shift what is read, within the uncertainty") {
  std::mt19937 random(2);
  const OtherClock clock{3, 0};
  const Ways ways{random, 1e-3, 1e-5, 1e-7};
  const ClockReading reading = read(clock, ways, 100);
  const double error_s = reading.offset_s - 3;
  REQUIRE(error_s == Approx((1e-3 - 1e-5) / 2).epsilon(0.01));
  REQUIRE(std::fabs(error_s) <= reading.uncertainty_s);
}

TEST_CASE("times of a trace become those of the clock that all share, in each rank's order") {
  IdTable<Rank, SharedClock> clocks = {SharedClock{}, SharedClock{10, {9, 5, 2e-6}, {19, 5.001, 3e-6}}};
  Trace trace;
  const TraceEvent mine = event_of(1_rank);
  TraceEvent met = mine;
  met.waited = Waited::peer;
  met.waited_rank = 0_rank;
  const TraceEvent kept = event_of(0_rank);
  trace.events = {kept, mine, met};
  trace.kernels.emplace_back();
  trace.kernels[0].step.rank = 1_rank;
  trace.kernels[0].end_s = 2;
  share_times(clocks, trace);
  CHECK(trace.clock_uncertainty_s == 3e-6);
  CHECK(trace.events[0] == kept);
  CHECK(trace.events[1].free_s == Approx(0.0001));
  CHECK(trace.events[1].begin_s == Approx(1.0002));
  CHECK(trace.events[1].matched_s == Approx(2.0003));
  CHECK(trace.events[1].end_s == Approx(3.0004));
  CHECK(trace.events[2].matched_s == 2);  // by the clock of rank 0
  CHECK(trace.kernels[0].end_s == Approx(2.0003));
  // Ranks of one host keep every bit.
  clocks[1_rank] = {};
  trace.events = {kept, mine, met};
  share_times(clocks, trace);
  CHECK(trace.clock_uncertainty_s == 0);
  CHECK(trace.events == std::vector{kept, mine, met});
}
