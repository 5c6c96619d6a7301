// Computes beside communication: timelines worked out by hand, for a chip whose computes then take twice as long.
#include <catch2/catch.hpp>

#include "models/compile/compile.hpp"
#include "sim/fabric/fold.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// 1 GB/s and no latency: a message of 1e9 bytes takes 1 s.
Cluster slowed(int chips, double factor) {
  Cluster cluster = one_node(chips, {FabricKind::loopback, 1e9, 0});
  cluster.groups[0].chip.software.overlap_slowdown = {factor, "assumed"};
  return cluster;
}
constexpr std::int64_t kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("a compute is slowed from a transfer's begin to its end", "[overlap]") {
  HandMade p(slowed(2, 2));
  p.join(0, 1);
  // Rank 1 posts its recv at 1 s; the message moves from 1 to 3 s. Rank 0 computes 4 s: 1 s alone, 1 s of work in
  // those 2 s, 2 s alone: it ends at 5. Rank 1 computes 1 s alone, then 3 s: 1 s in 2 s, 2 s alone: at 5.
  const After long_one = p.compute(0, 4);
  p.send(0, kNext, 2 * kSecond);
  const After first = p.compute(1, 1);
  const After second = p.compute(1, 3);
  const After received = p.recv(1, kPrevious, 2 * kSecond, {first});
  const Trace trace = p.run();
  CHECK(event_of(trace, 1, received).matched_s == Approx(1).epsilon(1e-9));
  CHECK(event_of(trace, 1, received).end_s == Approx(3).epsilon(1e-9));
  CHECK(event_of(trace, 0, long_one).end_s == Approx(5).epsilon(1e-9));
  CHECK(event_of(trace, 1, second).end_s == Approx(5).epsilon(1e-9));
}

TEST_CASE("two transfers at once slow a compute no more than one, for as long as either moves", "[overlap]") {
  HandMade p(slowed(3, 2));
  p.join(0, 1);
  p.join(1, 2);
  // Into rank 1 from 0 s to 1 s, out of it from 0 s to 3 s: of 2 s of work 1.5 s are done then.
  p.send(0, kNext, kSecond);
  p.recv(1, kPrevious, kSecond);
  p.send(1, kNext, 3 * kSecond);
  p.recv(2, kPrevious, 3 * kSecond);
  const After between = p.compute(1, 2);
  const After untouched = p.compute(0, 0.25);
  const Trace trace = p.run();
  CHECK(event_of(trace, 1, between).end_s == Approx(3.5).epsilon(1e-9));
  CHECK(event_of(trace, 0, untouched).end_s == Approx(0.5).epsilon(1e-9));
}

TEST_CASE("a collective slows its members' computes at every level, and nobody else's", "[overlap]") {
  for (CollectiveLevel level :
       {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded}) {
    Fidelity fidelity;
    fidelity.data_parallel = level;
    HandMade p(slowed(3, 1.5), fidelity);
    p.group(GroupKind::data, kDataGroup, {0, 1});
    // Rank 1 joins at 1 s. Two members: 2 * (1/2) of 3e9 bytes: from 1 to 4 s. Of rank 0's 5 s: 1 s, then 2 s in 3 s,
    // then 2 s: at 6.
    const After first = p.compute(1, 1);
    p.all_reduce(0, kDataGroup, 3 * kSecond);
    p.all_reduce(1, kDataGroup, 3 * kSecond, {first});
    const After beside = p.compute(0, 5);
    const After apart = p.compute(2, 5);
    const Trace trace = p.run();
    CAPTURE(static_cast<int>(level));
    CHECK(event_of(trace, 0, beside).end_s == Approx(6).epsilon(1e-9));
    CHECK(event_of(trace, 2, apart).end_s == Approx(5).epsilon(1e-9));
  }
}

TEST_CASE("waiting for a peer slows no compute, nor does a factor of 1", "[overlap]") {
  HandMade waits(slowed(2, 2));
  waits.join(0, 1);
  waits.send(0, kNext, kSecond);
  const After beside = waits.compute(0, 2);
  const After before = waits.compute(1, 3);
  waits.recv(1, kPrevious, kSecond, {before});
  CHECK(event_of(waits.run(), 0, beside).end_s == Approx(2).epsilon(1e-9));

  for (double factor : {0.0, 1.0}) {
    HandMade p(slowed(2, factor));
    p.join(0, 1);
    p.send(0, kNext, kSecond);
    p.recv(1, kPrevious, kSecond);
    const After free = p.compute(0, 2);
    CHECK(event_of(p.run(), 0, free).end_s == Approx(2).epsilon(1e-9));
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
