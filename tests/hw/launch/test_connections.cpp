// Which rank is named when one dies, is silent or trickles; and which is not, because it computes.
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <thread>

#include "hw/launch/connections.hpp"
#include "hw/transport/tcp/handshake.hpp"
#include "hw/transport/wire.hpp"
#include "models/base/refusal.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;

namespace {

constexpr double kEnough_s = 60;

// Both ends of a connection over the loopback interface.
std::pair<Socket, Socket> connection() {
  const Socket door = listen_on({"127.0.0.1", 0});
  Socket here = connect_to({"127.0.0.1", door.local_port()}, kEnough_s);
  return {std::move(here), accept_from(door, kEnough_s)};
}

template <class Act>
std::string failure_of(const Act& act) {
  try {
    act();
  } catch (const RunFailure& failure) {
    return failure.what();
  }
  return "";
}

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// The begin of a message of so many bytes.
std::vector<std::byte> head_of(std::uint32_t bytes) {
  WireWriter head;
  head.add(std::uint8_t{0});
  head.add(bytes);
  return head.take();
}

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

}  // namespace

TEST_CASE("a rank that computes for longer than the limit of silence lives", "[connections]") {
  auto [here, there] = connection();
  Connections leader({.rank = 0_rank, .silence_s = 1});
  leader.add(1_rank, std::move(here));
  std::thread computes([&, end = std::make_shared<Socket>(std::move(there))] {
    Connections follower({.rank = 1_rank, .silence_s = 1});
    follower.add(0_rank, std::move(*end));
    sleep_for(2.5);
    follower.send(0_rank, "done");
    follower.receive(0_rank);
  });
  const std::string message = leader.receive(1_rank);
  leader.send(1_rank, "end");
  computes.join();
  CHECK(message == "done");
  CHECK_FALSE(leader.failure());
}

TEST_CASE("a rank that gives no sign of life is named to every rank", "[connections]") {
  auto [to_silent, silent] = connection();
  auto [to_other, other_end] = connection();
  Connections leader({.rank = 0_rank, .silence_s = 1});
  leader.add(1_rank, std::move(to_silent));
  leader.add(2_rank, std::move(to_other));
  Connections other({.rank = 2_rank, .silence_s = 1});
  other.add(0_rank, std::move(other_end));
  CHECK_THAT(failure_of([&] { other.receive(0_rank); }),
             Catch::StartsWith("rank 2: rank 1 has given no sign of life for 1 s"));
  CHECK_THAT(failure_of([&] { leader.receive(2_rank); }),
             Catch::StartsWith("rank 0: rank 1 has given no sign of life for 1 s"));
}

TEST_CASE("a rank that has died is named, and not one that ends because of it", "[connections]") {
  for (const bool says_so : {false, true}) {
    auto [to_dead, dead] = connection();
    auto [to_other, other_end] = connection();
    Connections leader({.rank = 0_rank, .silence_s = 30});
    leader.add(1_rank, std::move(to_dead));
    leader.add(2_rank, std::move(to_other));
    {
      Connections other({.rank = 2_rank, .silence_s = 30});
      other.add(0_rank, std::move(other_end));
      if (says_so)  // it notices first
        other.fail("rank 2: rank 1 is gone (a message did not come)");
      else
        dead = Socket();
      CHECK_THAT(failure_of([&] { other.receive(0_rank); }), Catch::StartsWith("rank 2: rank 1 is gone ("));
    }
    CHECK_THAT(failure_of([&] { leader.receive(2_rank); }), Catch::StartsWith("rank 0: rank 1 is gone ("));
  }
}

TEST_CASE("a rank whose own work fails says why, to every rank", "[connections]") {
  auto [to_one, one_end] = connection();
  auto [to_other, other_end] = connection();
  Connections leader({.rank = 0_rank, .silence_s = 30});
  leader.add(1_rank, std::move(to_one));
  leader.add(2_rank, std::move(to_other));
  Connections one({.rank = 1_rank, .silence_s = 30}), other({.rank = 2_rank, .silence_s = 30});
  one.add(0_rank, std::move(one_end));
  other.add(0_rank, std::move(other_end));
  one.fail("no room");
  CHECK(failure_of([&] { other.receive(0_rank); }) == "rank 2: rank 1 failed: no room");
  CHECK(failure_of([&] { leader.receive(2_rank); }) == "rank 0: rank 1 failed: no room");
}

TEST_CASE("an owner that computes on after a failure is told on the thread, once", "[connections]") {
  auto [here, there] = connection();
  std::atomic<int> told = 0;
  std::string why;
  {
    Connections leader({.rank = 0_rank, .silence_s = 2, .on_overdue = [&](const std::string& what) {
                          why = what;
                          ++told;
                        }});
    leader.add(1_rank, std::move(here));
    there = Socket();
    while (told == 0) sleep_for(0.1);
    sleep_for(0.5);
  }
  CHECK(told == 1);
  CHECK_THAT(why, Catch::StartsWith("rank 0: rank 1 is gone ("));
}

TEST_CASE("ranks are called by their names, where they have any", "[connections]") {
  auto [here, there] = connection();
  auto [to_other, other_end] = connection();
  const auto name = [](Rank rank) { return rank == 0_rank ? "the first" : "the other"; };
  Connections leader({.rank = 0_rank, .silence_s = 30, .name = name});
  Connections other({.rank = 2_rank, .silence_s = 30, .name = name});
  leader.add(1_rank, std::move(here));
  leader.add(2_rank, std::move(to_other));
  other.add(0_rank, std::move(other_end));
  CHECK_FALSE(leader.ending(1_rank));
  CHECK_FALSE(leader.wait_for_message(1_rank, 0));
  there = Socket();
  CHECK(leader.wait_for_message(1_rank, kEnough_s));
  CHECK_THAT(leader.ending(1_rank).value_or(""), Catch::StartsWith("the other is gone ("));
  CHECK_THAT(failure_of([&] { leader.receive(1_rank); }),
             Catch::StartsWith("the first: the other is gone ("));
  CHECK_THAT(failure_of([&] { other.receive(0_rank); }), Catch::StartsWith("the other: the other is gone ("));
  other.fail("the other: no room");
  CHECK(other.failure() == leader.failure());
}

TEST_CASE("bytes that trickle in do not put off the end of a message", "[connections]") {
  for (const double silence_s : {1.0, 0.0}) {  // with heartbeats and without
    auto [here, slow] = connection();
    Connections leader({.rank = 0_rank, .silence_s = silence_s, .timeout_s = 1});
    leader.add(1_rank, std::move(here));
    slow.write_all(head_of(1'000'000), kEnough_s);
    std::atomic<bool> ended = false;
    std::thread trickles([&, end = std::make_shared<Socket>(std::move(slow))] {
      for (const std::byte byte{}; !ended; sleep_for(0.05)) try {
          end->write_all(std::span(&byte, 1), kEnough_s);
        } catch (const SocketFailure&) {
        }
    });
    const std::string failure = failure_of([&] { leader.receive(1_rank); });
    ended = true;
    trickles.join();
    CHECK_THAT(failure, Catch::Contains("rank 1 "));
    CHECK_THAT(failure,
               Catch::Contains(silence_s > 0 ? "1000000 bytes was not complete" : "rank 1 has sent nothing"));
  }
}

TEST_CASE("a socket reads and writes all or nothing in the time that it is given, however bytes trickle",
          "[connections]") {
  auto [here, slow] = connection();
  std::atomic<bool> ended = false;
  std::thread trickles([&ended, &from = slow] {
    for (const std::byte byte{}; !ended; sleep_for(0.05)) from.write_all(std::span(&byte, 1), kEnough_s);
  });
  std::array<std::byte, 1000> bytes;
  const double begin_s = monotonic_s();
  CHECK_THROWS_AS(here.read_all(bytes, 0.5), SocketFailure);
  CHECK(monotonic_s() - begin_s < kEnough_s / 2);
  ended = true;
  trickles.join();
}

TEST_CASE("who announces a long message and sends none of it makes nobody reserve its place",
          "[connections]") {
  auto [here, there] = connection();
  Connections follower({.rank = 1_rank, .silence_s = 1});
  const double before_mib = resident_mib();
  follower.add(0_rank, std::move(here));
  there.write_all(head_of(kMessageBytesMax), kEnough_s);
  CHECK_THAT(failure_of([&] { follower.receive(0_rank); }),
             Catch::Contains("rank 0 has given no sign of life"));
  CHECK(resident_mib() - before_mib < 64);
}

TEST_CASE("a message that is longer than any is no message", "[connections]") {
  auto [here, there] = connection();
  Connections follower({.rank = 1_rank, .silence_s = 30});
  follower.add(0_rank, std::move(here));
  there.write_all(head_of(kMessageBytesMax + 1), kEnough_s);
  CHECK(failure_of([&] { follower.receive(0_rank); }) ==
        "rank 1: rank 0 is gone (it sends no message of ours)");
}

TEST_CASE("long messages pass whole, both ways at once", "[connections]") {
  auto [here, there] = connection();
  Connections leader({.rank = 0_rank, .silence_s = 30}), follower({.rank = 1_rank, .silence_s = 30});
  leader.add(1_rank, std::move(here));
  follower.add(0_rank, std::move(there));
  const std::string mine(20'000'000, 'm'), theirs(5'000'001, 't');
  std::string came;
  std::thread other([&] {
    follower.send(0_rank, theirs);
    came = follower.receive(0_rank);
  });
  leader.send(1_rank, mine);
  const bool same = leader.receive(1_rank) == theirs;
  other.join();
  CHECK(same);
  CHECK(came == mine);
}

TEST_CASE("one who mirrors the proof of the other end is not taken for an end of the job") {
  const JobToken token("a");
  const auto [dials, mirrors] = connection();
  const auto [hears, accepts] = connection();
  Handshake dialer = Handshake::of_dialer(token, {ConnectionPurpose::data, 1_rank, 0_rank, 0});
  Handshake acceptor = Handshake::of_acceptor(token);
  acceptor.advance(accepts);
  // The challenge is that of an end of the job: eight bytes name the protocol. The welcome is the dialer's own proof.
  std::vector<std::byte> challenge(8 + sizeof(Nonce)), answer(1000);
  hears.read_all(challenge, kEnough_s);
  mirrors.write_all(challenge, kEnough_s);
  std::size_t length = 0;
  Handshake::State state = Handshake::State::goes_on;
  for (int i = 0; i < 10'000 && length < sizeof(Proof); ++i) {
    state = dialer.advance(dials);
    length += mirrors.read_some(std::span(answer).subspan(length));
    sleep_for(0.001);
  }
  REQUIRE(length > sizeof(Proof));
  mirrors.write_all(std::span<const std::byte>(answer).subspan(length - sizeof(Proof), sizeof(Proof)),
                    kEnough_s);
  for (int i = 0; i < 10'000 && state == Handshake::State::goes_on; ++i) {
    state = dialer.advance(dials);
    sleep_for(0.001);
  }
  CHECK(state == Handshake::State::failed);
  CHECK_THAT(dialer.complaint(), Catch::Contains("does not have the token"));
}
