// The Sim world on programs that are small enough to be timed by hand.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

Approx exactly(double value) { return Approx(value).epsilon(1e-9); }

}  // namespace

TEST_CASE("a single flow takes latency plus bytes over bandwidth") {
  HandMade p(one_node(2));
  p.join(0_rank, 1_rank);
  p.send(0_rank, kNext, 1'000'000'000);
  p.recv(1_rank, kPrevious, 1'000'000'000);
  CHECK(end_of(p.run()) == exactly(1.0 + 1e-5));
}

TEST_CASE("two flows into one chip take twice as long") {
  HandMade p(one_node(3));
  p.join(0_rank, 1_rank);
  p.join(1_rank, 2_rank);
  p.send(0_rank, kNext, 1'000'000'000);
  p.recv(1_rank, kPrevious, 1'000'000'000);
  p.send(2_rank, kPrevious, 1'000'000'000);
  p.recv(1_rank, kNext, 1'000'000'000);
  CHECK(end_of(p.run()) == exactly(2.0 + 1e-5));
}

TEST_CASE("flows of terabytes share a chip as small ones do") {
  HandMade p(one_node(3, {FabricKind::loopback, 1e12, 1e-5}));
  p.join(0_rank, 1_rank);
  p.join(1_rank, 2_rank);
  p.send(0_rank, kNext, 20'000'000'000'000);
  p.recv(1_rank, kPrevious, 20'000'000'000'000);
  p.send(2_rank, kPrevious, 20'000'000'000'000);
  p.recv(1_rank, kNext, 20'000'000'000'000);
  CHECK(end_of(p.run()) == exactly(40.0 + 1e-5));
}

TEST_CASE("opposite flows do not disturb each other") {
  HandMade p(one_node(2));
  p.join(0_rank, 1_rank);
  p.send(0_rank, kNext, 1'000'000'000);
  p.recv(1_rank, kPrevious, 1'000'000'000);
  p.send(1_rank, kPrevious, 1'000'000'000);
  p.recv(0_rank, kNext, 1'000'000'000);
  CHECK(end_of(p.run()) == exactly(1.0 + 1e-5));
}

TEST_CASE("a transfer starts when both sides have posted, and the trace says who was waited for") {
  HandMade p(one_node(2));
  p.join(0_rank, 1_rank);
  const After work = p.compute(0_rank, 0.5);
  const After sent = p.send(0_rank, kNext, 1'000'000'000, {work});
  const After received = p.recv(1_rank, kPrevious, 1'000'000'000);
  const After next = p.compute(1_rank, 0.25, {received});
  const Trace trace = p.run();
  const TraceEvent& send = event_of(trace, 0_rank, sent);
  CHECK(send.free_s == 0);
  CHECK(send.begin_s == exactly(0.5));
  CHECK(send.matched_s == send.begin_s);
  CHECK(send.waited == Waited::step);
  CHECK(send.waited_for == Step{0_rank, work.stream, work.index});
  const TraceEvent& recv = event_of(trace, 1_rank, received);
  CHECK(recv.begin_s == 0);
  CHECK(recv.matched_s == send.matched_s);
  CHECK(recv.end_s == send.end_s);
  CHECK(recv.waited == Waited::peer);
  CHECK(recv.waited_rank == 0_rank);
  CHECK(recv.bytes == 1'000'000'000);
  CHECK(event_of(trace, 1_rank, next).begin_s == recv.end_s);
  CHECK(end_of(trace) == exactly(1.75 + 1e-5));
}

TEST_CASE("a deadlock is a failure that names the waiting ranks and their instructions") {
  HandMade p(one_node(2));
  p.join(0_rank, 1_rank);
  p.compute(0_rank, 1.0);
  p.send(0_rank, kNext, 100);
  p.recv(0_rank, kNext, 100);
  p.send(1_rank, kPrevious, 100, {{StreamId{1}, 0}});
  p.compute(1_rank, 0.5, {{StreamId{1}, 0}});
  p.recv(1_rank, kPrevious, 100, {{kComputeStream, 0}});
  try {
    p.run();
    FAIL("the deadlock went unnoticed");
  } catch (const RunFailure& failure) {
    const std::string text = failure.what();
    CHECK_THAT(text, Catch::Contains("deadlock at 1 s"));
    CHECK_THAT(text, Catch::Contains("rank 0 send_activation[0]"));
    CHECK_THAT(text, Catch::Contains("waits for rank 1 to post its recv"));
    CHECK_THAT(text, Catch::Contains("rank 1 compute[0]"));
  }
}
