// What the others are told, and what they are not given, when a rank fails, is late, or ends: some of the ranks here
// are made of sockets and frames, so that they can say anything at any time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "hw/communicator/messenger.hpp"
#include "hw/transport/tcp/handshake.hpp"
#include "models/base/refusal.hpp"
#include "tests/support/loopback.hpp"
#include "tests/support/ranks.hpp"

namespace motley {
namespace {

using tests::impatient;
using tests::on_loopback;
using tests::receive_from;
using tests::send_to;
using tests::text_of;

constexpr double kMost_s = 60;  // longer than anything here takes

void write_frame(const Socket& socket, const Frame& frame) { socket.write_all(encode(frame), kMost_s); }

// The next frame that is no data.
Frame read_frame(const Socket& socket) {
  std::array<std::byte, kFrameLengthBytes> head;
  socket.read_all(head, kMost_s);
  std::vector<std::byte> rest(WireReader(head).number<std::uint16_t>());
  socket.read_all(rest, kMost_s);
  const auto frame = decode(rest);
  tests::demand(frame.has_value(), "it is no frame");
  return *frame;
}

// The place of a rank that the test plays itself, among real ones.
class PlayedRank {
 public:
  explicit PlayedRank(MessengerOptions options)
      : rank_(options.rank),
        token_(options.token),
        peers_(options.peers),
        door_(std::move(options.listener), options.token, nullptr) {}
  // Waits until a rank has dialled this one.
  Socket admit() {
    for (;;) {
      auto guests = door_.admit();
      if (!guests.empty()) return std::move(guests[0].socket);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  Socket dial_to(Rank peer) const {
    return dial(peers_.at(peer).address, token_, {ConnectionPurpose::data, rank_, peer, 0}, kMost_s);
  }

 private:
  Rank rank_;
  JobToken token_;
  std::map<Rank, PeerPlace> peers_;
  Door door_;
};

constexpr std::byte kSeven{7};

// What the receiver of a message says.
Frame ready_for(std::uint64_t tag, std::size_t bytes) {
  Frame ready;
  ready.transfer = tag;
  ready.key.operation = tag;
  ready.call.count = ready.bytes = bytes;
  return ready;
}

// Data with as many bytes, all of them 7, and what comes behind them.
void write_data(const Socket& socket, const Frame& ready, std::byte mark) {
  Frame data;
  data.kind = FrameKind::data;
  data.transfer = ready.transfer;
  data.bytes = data.length = ready.bytes;
  write_frame(socket, data);
  std::vector<std::byte> bytes(ready.bytes, kSeven);
  bytes.push_back(mark);
  socket.write_all(bytes, kMost_s);
}

// A real rank 0 that sends so many bytes to a played rank 1, and fails once it is told to.
class FailingSender {
 public:
  FailingSender(MessengerOptions options, std::size_t size)
      : thread_([this, size, mine = std::make_shared<MessengerOptions>(std::move(options))] {
          Messenger messenger(std::move(*mine));
          std::vector<std::byte> bytes(size, kSeven);
          const Request sent = messenger.post(send_to(1_rank, 1, bytes));
          while (!fails_) messenger.test(sent);
          messenger.abort("rank 0 has enough");
          std::fill(bytes.begin(), bytes.end(), std::byte{8});
          has_failed_ = true;
          while (!may_end_) std::this_thread::yield();
        }) {}
  ~FailingSender() {
    fails_ = may_end_ = true;
    thread_.join();
  }
  void fail() {
    fails_ = true;
    while (!has_failed_) std::this_thread::yield();
  }
  void end() { may_end_ = true; }

 private:
  std::atomic<bool> fails_ = false, has_failed_ = false, may_end_ = false;
  std::thread thread_;
};

TEST_CASE("a rank that has failed marks what it sends in the place of promised bytes", "[communicator]") {
  constexpr std::size_t kBytes = 40'000'000;  // more than the kernel takes of a connection
  auto options = tests::loopback_options(2, {});
  PlayedRank played(std::move(options[1]));
  FailingSender sender(std::move(options[0]), kBytes);
  const Socket to = played.dial_to(0_rank);
  write_frame(to, ready_for(1, kBytes));
  const Socket from = played.admit();
  Frame frame = read_frame(from);
  sender.fail();
  sender.end();
  for (; frame.kind == FrameKind::data; frame = read_frame(from)) {
    std::vector<std::byte> bytes(frame.length + 1);
    from.read_all(bytes, kMost_s);
    const bool right =
        std::all_of(bytes.begin(), bytes.end() - 1, [](std::byte each) { return each == kSeven; });
    REQUIRE((right || bytes.back() == std::byte{0}));
  }
  CHECK(frame.kind == FrameKind::abort);
}

TEST_CASE("bytes that are marked as others than those that were promised end no receive", "[communicator]") {
  auto options = tests::loopback_options(2, {});
  PlayedRank played(std::move(options[1]));
  std::thread fails([&] {
    const Socket from = played.admit(), to = played.dial_to(0_rank);
    write_data(to, read_frame(from), std::byte{1});
    write_data(to, read_frame(from), std::byte{0});
    Frame abort;
    abort.kind = FrameKind::abort;
    abort.text = "rank 1 has enough";
    write_frame(to, abort);
  });
  Messenger messenger(std::move(options[0]));
  std::vector<std::byte> bytes(100'000);
  messenger.wait(messenger.post(receive_from(1_rank, 1, bytes)));
  CHECK(bytes.back() == kSeven);
  CHECK_THROWS_WITH(messenger.wait(messenger.post(receive_from(1_rank, 2, bytes))),
                    "rank 0: rank 1 has enough");
  fails.join();
}

TEST_CASE("memory that a rank has offered is not read once the rank has failed", "[communicator]") {
  constexpr std::size_t kBytes = 100'000;
  auto options = tests::loopback_options(2, {.reads_memory = true});
  PlayedRank played(std::move(options[1]));
  FailingSender sender(std::move(options[0]), kBytes);
  const Socket to = played.dial_to(0_rank);
  write_frame(to, ready_for(1, kBytes));
  const Socket from = played.admit();
  const Frame offer = read_frame(from);
  REQUIRE(offer.kind == FrameKind::offer);
  std::string why;
  const auto memory = PeerMemory::open(offer.mark, why);
  if (!memory) return;  // this kernel lets nobody read
  std::vector<std::byte> bytes(kBytes);
  CHECK(memory->read(offer.pieces, bytes));
  CHECK(bytes == std::vector<std::byte>(kBytes, kSeven));
  sender.fail();
  CHECK_FALSE(memory->read(offer.pieces, bytes));
}

TEST_CASE("one who is silent is blamed, even where the oldest messages of others wait for each other",
          "[communicator]") {
  std::atomic<int> failed = 0;
  const auto thrown = on_loopback(
      3,
      [&](Messenger& messenger) {
        std::vector<std::byte> bytes(100), others(100);
        if (messenger.rank() == 2_rank) {
          while (failed < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return;
        }
        const Rank other(1 - messenger.rank().value());
        try {
          const Request later = messenger.post(receive_from(other, 1, others));
          messenger.wait(messenger.post(receive_from(2_rank, 1, bytes)));
        } catch (...) {
          ++failed;
          throw;
        }
      },
      impatient(0.5));
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK_THAT(text_of(thrown[i]), Catch::Contains("rank 2 does not answer"));
    CHECK_THAT(text_of(thrown[i]), Catch::Contains("a message of 100 bytes"));
  }
}

TEST_CASE("data that do not fit into their message end the run, and not a byte beyond it is written",
          "[communicator]") {
  constexpr std::size_t kBytes = 100;
  struct Claim {
    std::uint64_t bytes, offset, length;  // of the message, and of this part of it
  };
  const std::vector<Claim> claims = {
      {kBytes + 1, 0, kBytes}, {kBytes + 100, kBytes, 50}, {kBytes, kBytes + 1, 1},       {kBytes, kBytes, 1},
      {kBytes, 60, 41},        {kBytes / 2, 60, 1},        {std::uint64_t{1} << 63, 0, 1}};
  for (const auto& [bytes, offset, length] : claims) {
    CAPTURE(bytes, offset, length);
    auto options = tests::loopback_options(2, {});
    PlayedRank played(std::move(options[1]));
    std::vector<std::byte> memory(4 * kBytes);
    std::string failure;
    std::thread lies([&, bytes = bytes, offset = offset, length = length] {
      const Socket from = played.admit(), to = played.dial_to(0_rank);
      Frame data;
      data.kind = FrameKind::data;
      data.transfer = read_frame(from).transfer;
      data.bytes = bytes;
      data.offset = offset;
      data.length = length;
      write_frame(to, data);
      try {
        to.write_all(std::vector<std::byte>(length + 1, kSeven), kMost_s);
        while (read_frame(from).kind != FrameKind::abort) {
        }
      } catch (const SocketFailure&) {  // it has hung up
      }
    });
    {
      Messenger messenger(std::move(options[0]));
      try {
        messenger.wait(messenger.post(receive_from(1_rank, 1, std::span(memory).first(kBytes))));
      } catch (const RunFailure& thrown) {
        failure = thrown.what();
      }
    }
    lies.join();
    CHECK_THAT(failure, Catch::Contains(fmt::format("rank 1 sends {} bytes, and rank 0 expects 100", bytes)));
    CHECK(std::all_of(memory.begin() + kBytes, memory.end(),
                      [](std::byte each) { return each == std::byte{}; }));
  }
}

TEST_CASE("one whose message comes while it is asked is not blamed", "[communicator]") {
  auto options = tests::loopback_options(2, impatient(0.2));
  PlayedRank played(std::move(options[1]));
  std::thread late([&] {
    const Socket from = played.admit(), to = played.dial_to(0_rank);
    const Frame first = read_frame(from), second = read_frame(from);
    Frame answer;
    while (answer.kind != FrameKind::ask) answer = read_frame(from);
    write_data(to, first, std::byte{1});
    answer.kind = FrameKind::answer;  // it waits for nobody now
    write_frame(to, answer);
    write_data(to, second, std::byte{1});
  });
  std::string failure;
  {
    Messenger messenger(std::move(options[0]));
    std::vector<std::byte> bytes(100), others(100);
    const Request first = messenger.post(receive_from(1_rank, 1, bytes)),
                  second = messenger.post(receive_from(1_rank, 2, others));
    try {
      messenger.wait(first);
      messenger.wait(second);
    } catch (const RunFailure& thrown) {
      failure = thrown.what();
    }
    late.join();
  }
  CHECK(failure.empty());
}

TEST_CASE("a message that was not sent ahead of its receiver is not over because the peer calls it recalled",
          "[communicator]") {
  auto options = tests::loopback_options(2, {});
  PlayedRank played(std::move(options[1]));
  std::thread odd([&] {
    const Socket from = played.admit(), to = played.dial_to(0_rank);
    const Frame ready = read_frame(from);
    Frame recalled;
    recalled.kind = FrameKind::recalled;
    for (const std::uint64_t number : {1U, 99U}) {  // the first message, and none
      recalled.sender_number = number;
      write_frame(to, recalled);
    }
    write_data(to, ready, std::byte{1});
    read_frame(from);  // goodbye
  });
  {
    Messenger messenger(std::move(options[0]));
    std::vector<std::byte> large(kEagerMost + 1), bytes(100);
    const Request sent = messenger.post(send_to(1_rank, 1, large));
    messenger.wait(messenger.post(receive_from(1_rank, 2, bytes)));
    CHECK(bytes.back() == kSeven);
    CHECK_FALSE(messenger.test(sent));
    messenger.cancel(sent);
  }
  odd.join();
}

TEST_CASE("a rank that ends says goodbye", "[communicator]") {
  auto options = tests::loopback_options(2, {});
  PlayedRank played(std::move(options[1]));
  std::thread real([&] {
    Messenger messenger(std::move(options[0]));
    std::vector<std::byte> bytes(10);
    messenger.wait(messenger.post(receive_from(1_rank, 1, bytes)));
  });
  const Socket from = played.admit(), to = played.dial_to(0_rank);
  write_data(to, read_frame(from), std::byte{1});
  const Frame last = read_frame(from);
  real.join();
  CHECK(last.kind == FrameKind::goodbye);
}

TEST_CASE("a rank that fails says why to all that have dialled it", "[communicator]") {
  auto options = tests::loopback_options(2, {});
  PlayedRank played(std::move(options[1]));
  std::atomic<bool> came = false;
  std::thread real([&] {
    Messenger messenger(std::move(options[0]));
    std::vector<std::byte> byte(1);
    const Request never = messenger.post(send_to(1_rank, 1, byte));
    while (!came) messenger.test(never);
    messenger.abort("rank 0 has enough");
  });
  const Socket to = played.dial_to(0_rank);
  came = true;
  real.join();  // it ends before this rank listens to what it says
  const Frame last = read_frame(to);
  CHECK(last.kind == FrameKind::abort);
  CHECK(last.rank == 0_rank);
  CHECK(last.text == "rank 0 has enough");
}

TEST_CASE("a rank that has failed is not blamed by those to whom it says why", "[communicator]") {
  auto options = tests::loopback_options(3, impatient(20));
  PlayedRank played(std::move(options[1]));
  std::thread fails([&] {
    const Socket from = played.admit();
    read_frame(from);
    Frame abort;
    abort.kind = FrameKind::abort;
    abort.rank = 2_rank;
    abort.text = "rank 2 is gone (it sleeps)";
    write_frame(from, abort);
  });
  Messenger messenger(std::move(options[0]));
  std::vector<std::byte> bytes(1);
  CHECK_THROWS_WITH(messenger.wait(messenger.post(receive_from(1_rank, 1, bytes))),
                    "rank 0: rank 2 is gone (it sleeps)");
  fails.join();
}

TEST_CASE("a call that was turned away while its rank was busy is made again", "[communicator]") {
  const JobToken token("loopback");
  Socket listener = listen_on({"127.0.0.1", 0});
  Dial call({"127.0.0.1", listener.local_port()}, token, {ConnectionPurpose::data, 0_rank, 1_rank, 0},
            {.refused_s = 0.5, .silent_s = kMost_s});
  CHECK(call.advance() == Handshake::State::goes_on);
  accept_from(listener, kMost_s);                               // and closes it
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // it is busy for longer than it calls in vain
  Door door(std::move(listener), token, nullptr);
  Handshake::State state = Handshake::State::goes_on;
  std::size_t guests = 0;
  for (const double until_s = monotonic_s() + kMost_s;
       monotonic_s() < until_s && (guests == 0 || state != Handshake::State::done);) {
    if (state == Handshake::State::goes_on) state = call.advance();
    if (state == Handshake::State::failed) break;
    guests += door.admit().size();
  }
  CHECK(state == Handshake::State::done);
  CHECK(guests == 1);
}

TEST_CASE("a handshake that somebody has recorded is refused when it is played again", "[communicator]") {
  const JobToken token("loopback");
  Socket listener = listen_on({"127.0.0.1", 0});
  const Address at{"127.0.0.1", listener.local_port()};
  std::string notes;
  Door door(std::move(listener), token, [&](const std::string& what) { notes += what; });
  // Somebody stands between a rank and the door, and passes on what he hears.
  Socket between = listen_on({"127.0.0.1", 0});
  std::vector<std::byte> challenge(24), answer(59), welcome(32);
  std::atomic<bool> ended = false;
  std::thread records([&] {
    const Socket from_rank = accept_from(between, kMost_s), to_door = connect_to(at, kMost_s);
    to_door.read_all(challenge, kMost_s);
    from_rank.write_all(challenge, kMost_s);
    from_rank.read_all(answer, kMost_s);
    to_door.write_all(answer, kMost_s);
    to_door.read_all(welcome, kMost_s);
    from_rank.write_all(welcome, kMost_s);
    const Socket again = connect_to(at, kMost_s);
    std::vector<std::byte> other(24);
    again.read_all(other, kMost_s);
    tests::demand(other != challenge, "a challenge came twice");
    again.write_all(answer, kMost_s);
    again.read_all(welcome, kMost_s);
    ended = true;
  });
  std::thread rank([&] {
    dial({"127.0.0.1", between.local_port()}, token, {ConnectionPurpose::data, 1_rank, 0_rank, 0}, kMost_s);
  });
  std::size_t guests = 0;
  while (!ended) guests += door.admit().size();
  records.join();
  rank.join();
  CHECK(guests == 1);
  CHECK(welcome == std::vector<std::byte>(32));
  door.admit();
  CHECK_THAT(notes, Catch::Contains("it does not have the token of the job"));
}

}  // namespace
}  // namespace motley
