// Computes beside communication: timelines worked out by hand, for chips whose computes then take longer.
#include <catch2/catch.hpp>

#include "models/compile/compile.hpp"
#include "sim/fold/fold.hpp"
#include "sim/world/overlap.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// A cluster with 1 GB/s and no latency, so that a message of 1e9 bytes takes 1 s.
Cluster slowed(int chips, double factor) {
  Cluster cluster = one_node(chips, {FabricKind::loopback, 1e9, 0});
  cluster.groups[0].chip.software.overlap_slowdown = {factor, "assumed"};
  return cluster;
}
constexpr std::int64_t kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("a compute is slowed from a transfer's begin to its end", "[overlap]") {
  HandMade p(slowed(2, 2));
  p.join(0_rank, 1_rank);
  // Rank 1 posts its recv at 1 s; the message moves from 1 to 3 s. Rank 0 has 4 s of work: it does 1 s alone, 1 s
  // during these 2 s, and 2 s alone, and ends at 5 s. Rank 1 has 1 s of work alone, then 3 s: it does 1 s of them
  // during the 2 s and 2 s alone, and ends at 5 s.
  const After long_one = p.compute(0_rank, 4);
  p.send(0_rank, kNext, 2 * kSecond);
  const After first = p.compute(1_rank, 1);
  const After second = p.compute(1_rank, 3);
  const After received = p.recv(1_rank, kPrevious, 2 * kSecond, {first});
  const Trace trace = p.run();
  CHECK(event_of(trace, 1_rank, received).matched_s == Approx(1).epsilon(1e-9));
  CHECK(event_of(trace, 1_rank, received).end_s == Approx(3).epsilon(1e-9));
  CHECK(event_of(trace, 0_rank, long_one).end_s == Approx(5).epsilon(1e-9));
  CHECK(event_of(trace, 1_rank, second).end_s == Approx(5).epsilon(1e-9));
}

TEST_CASE("a compute of which a rounding error is left when a transfer ends comes to its end", "[overlap]") {
  const HandMade p(slowed(1, 2));
  // A transfer from 44 to 46 s, by when 45 s of work are done.
  constexpr double kRounding_s = 0x1p-47;  // between two doubles at 46
  for (double left_s = 0.9e-12; left_s < 1.1e-12; left_s += kRounding_s) {
    CAPTURE(left_s);
    Clock clock;
    Overlap overlap(p.program, p.job.cluster, clock);
    bool ended = false;
    const auto run = [&]() -> Task {
      co_await overlap.compute(0_rank, 45 + left_s);
      ended = true;
    };
    const auto transfer = [&]() -> Task {
      co_await clock.sleep(44);
      overlap.begin(0_rank);
      co_await clock.sleep(2);
      overlap.end(0_rank);
    };
    const Task task = run(), beside = transfer();
    clock.move_to(44);
    clock.move_to(46);
    clock.move_to(46 + 1e-9);
    CHECK(ended);
  }
}

TEST_CASE("two transfers at once slow a compute no more than one, for as long as either moves", "[overlap]") {
  HandMade p(slowed(3, 2));
  p.join(0_rank, 1_rank);
  p.join(1_rank, 2_rank);
  // A message into rank 1 moves from 0 to 1 s, one out of it from 0 to 3 s. At 3 s, 1.5 s of 2 s of work are done.
  p.send(0_rank, kNext, kSecond);
  p.recv(1_rank, kPrevious, kSecond);
  p.send(1_rank, kNext, 3 * kSecond);
  p.recv(2_rank, kPrevious, 3 * kSecond);
  const After between = p.compute(1_rank, 2);
  const After untouched = p.compute(0_rank, 0.25);
  const Trace trace = p.run();
  CHECK(event_of(trace, 1_rank, between).end_s == Approx(3.5).epsilon(1e-9));
  CHECK(event_of(trace, 0_rank, untouched).end_s == Approx(0.5).epsilon(1e-9));
}

TEST_CASE("a collective slows its members' computes at every level, and nobody else's", "[overlap]") {
  for (CollectiveLevel level :
       {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded}) {
    Fidelity fidelity;
    fidelity.data_parallel = level;
    HandMade p(slowed(3, 1.5), fidelity);
    p.group(GroupKind::data, kDataGroup, {0_rank, 1_rank});
    // Rank 1 joins at 1 s. Two members move 2 * (1/2) of 3e9 bytes, from 1 to 4 s. Rank 0 has 5 s of work: it does 1 s
    // before, 2 s during these 3 s, and 2 s after, and ends at 6 s.
    const After first = p.compute(1_rank, 1);
    p.all_reduce(0_rank, kDataGroup, 3 * kSecond);
    p.all_reduce(1_rank, kDataGroup, 3 * kSecond, {first});
    const After beside = p.compute(0_rank, 5);
    const After apart = p.compute(2_rank, 5);
    const Trace trace = p.run();
    CAPTURE(static_cast<int>(level));
    CHECK(event_of(trace, 0_rank, beside).end_s == Approx(6).epsilon(1e-9));
    CHECK(event_of(trace, 2_rank, apart).end_s == Approx(5).epsilon(1e-9));
  }
}

TEST_CASE("waiting for a peer slows no compute, nor does a factor of 1", "[overlap]") {
  HandMade waits(slowed(2, 2));
  waits.join(0_rank, 1_rank);
  waits.send(0_rank, kNext, kSecond);
  const After beside = waits.compute(0_rank, 2);
  const After before = waits.compute(1_rank, 3);
  waits.recv(1_rank, kPrevious, kSecond, {before});
  CHECK(event_of(waits.run(), 0_rank, beside).end_s == Approx(2).epsilon(1e-9));

  for (double factor : {0.0, 1.0}) {
    HandMade p(slowed(2, factor));
    p.join(0_rank, 1_rank);
    p.send(0_rank, kNext, kSecond);
    p.recv(1_rank, kPrevious, kSecond);
    const After free = p.compute(0_rank, 2);
    CHECK(event_of(p.run(), 0_rank, free).end_s == Approx(2).epsilon(1e-9));
  }
}

TEST_CASE("slowed runs are the same twice, and folded as unfolded", "[overlap]") {
  Job job = tiny_job({2, 2, 2});
  for (NodeGroup& group : job.cluster.groups) group.chip.software.overlap_slowdown = {1.3, "assumed"};
  job.strategy.overlap_gradients = true;
  job.strategy.bucket_bytes = 10'000;
  const Program program = compile(job);
  const double once = end_of(simulate_in_child(job, program));
  CHECK(end_of(simulate_in_child(job, program)) == once);
  job.fidelity.fold = true;
  CHECK(end_of(simulate_in_child(job, program)) == Approx(once).epsilon(1e-9));
  for (NodeGroup& group : job.cluster.groups) group.chip.software.overlap_slowdown = {};
  CHECK(end_of(simulate_in_child(job, program)) < once);
}
