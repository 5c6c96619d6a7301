// Messages between ranks: sizes at every boundary, the rendezvous of sends and receives, many at once, cancelling, and
// the reports of a peer that is dead, silent or in another call. Strangers on a port change nothing.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <random>
#include <thread>

#include "hw/communicator/communicator.hpp"
#include "hw/transport/tcp/handshake.hpp"
#include "models/base/refusal.hpp"
#include "tests/support/loopback.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sanitized.hpp"

namespace motley {
namespace {

using tests::demand;
using tests::impatient;
using tests::on_loopback;
using tests::receive_from;
using tests::rethrow_first;
using tests::send_to;
using tests::text_of;

std::byte pattern(std::size_t i, Rank rank) {
  return static_cast<std::byte>(i * 31 + i / 251 + 7 * at(rank));
}

// Every rank sends to the next rank and receives from the previous one at the same time.
void pass_round(Messenger& messenger, int ranks, std::size_t bytes) {
  const Rank rank = messenger.rank(), next((rank.value() + 1) % ranks),
             previous((rank.value() + ranks - 1) % ranks);
  std::vector<std::byte> out(bytes), in(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = pattern(i, rank);
  const Request sent = messenger.post(send_to(next, bytes, out)),
                received = messenger.post(receive_from(previous, bytes, in));
  messenger.wait(received);
  messenger.wait(sent);
  for (std::size_t i = 0; i < bytes; ++i) demand(in[i] == pattern(i, previous), "wrong byte");
}

TEST_CASE("bytes of any number arrive whole, whatever the number of ranks and the path",
          "[communicator][slow]") {
  for (tests::Loopback how : tests::every_way())
    for (const int streams : {1, 4})
      for (const int ranks : {2, 3, 5}) {
        if (tests::kSanitized && ranks != 3) continue;
        how.streams = streams;
        rethrow_first(on_loopback(
            ranks,
            [&](Messenger& messenger) {
              for (const std::size_t bytes : {0U, 1U, 7U, 12345U, 65535U, 65536U, 65537U, 3U << 20U})
                pass_round(messenger, ranks, bytes);
              demand(messenger.staging_buffers() == 0, "a buffer is kept");
            },
            how));
      }
}

TEST_CASE("messages go over IPv6, too", "[communicator]") {
  rethrow_first(
      on_loopback(2, [](Messenger& messenger) { pass_round(messenger, 2, 100'000); }, {.host = "::1"}));
}

TEST_CASE("large messages take the path that both sides have, and say so", "[communicator]") {
  for (tests::Loopback how : tests::every_way()) {
    std::mutex mutex;
    std::vector<Path> paths;
    how.on_send = [&](Rank, const SendOrder& order, Path path) {
      const std::lock_guard lock(mutex);
      if (bytes_in(order.pieces) > 100'000) paths.push_back(path);
    };
    rethrow_first(on_loopback(
        2, [](Messenger& messenger) { pass_round(messenger, 2, 1U << 20U); }, how));
    REQUIRE(paths == std::vector(2, how.reads_memory ? Path::shm : Path::tcp));
  }
}

TEST_CASE("an RDMA device that is not there is noted, and messages go on without it", "[communicator]") {
  std::mutex mutex;
  std::string notes;
  tests::Loopback how;
  how.change = [](MessengerOptions& options) { options.rdma_devices = {"nowhere0"}; };
  how.on_note = [&](Rank, const std::string& what) {
    const std::lock_guard lock(mutex);
    notes += what + "\n";
  };
  rethrow_first(on_loopback(
      2,
      [](Messenger& messenger) {
        std::vector<std::byte> bytes(100'000);
        demand(messenger.register_memory(bytes) == nullptr, "memory was registered without a device");
        pass_round(messenger, 2, 100'000);
        demand(messenger.path_to(Rank(1 - messenger.rank().value()), 100'000) == Path::tcp, "another path");
      },
      how));
  REQUIRE(std::count(notes.begin(), notes.end(), '\n') == 2);
  REQUIRE_THAT(notes, Catch::Contains("nowhere0"));
  REQUIRE(living_verbs_objects() == 0);
}

TEST_CASE("a peer whose memory cannot be read is sent its bytes", "[communicator]") {
  for (const bool copies_twice : {false, true}) {
    tests::Loopback how;
    how.reads_memory = true;
    how.copies_twice = copies_twice;
    how.change = [](MessengerOptions& options) { options.reads_memory = options.rank == 0_rank; };
    rethrow_first(on_loopback(
        2,
        [](Messenger& messenger) {
          for (const std::size_t bytes : {100'000U, 3U << 20U, 50'000U, 3U << 20U})
            pass_round(messenger, 2, bytes);
          demand(messenger.staging_buffers() == 0, "a buffer is kept");
        },
        how));
  }
}

TEST_CASE("what is posted together leaves at its end, or once somebody waits", "[communicator]") {
  for (tests::Loopback how : tests::every_way())
    for (const std::size_t bytes : {8U, 3'000U, 100'000U, 3U << 20U})
      rethrow_first(on_loopback(
          3,
          [&](Messenger& messenger) {
            const Messenger::Together outer(messenger);
            {
              const Messenger::Together inner(messenger);
              pass_round(messenger, 3, bytes);  // waits while both hold
            }
            pass_round(messenger, 3, bytes + 1);
          },
          how));
}

TEST_CASE("a rank that has posted together owes nobody anything", "[communicator]") {
  std::atomic<bool> done = false;
  rethrow_first(on_loopback(2, [&](Messenger& messenger) {
    pass_round(messenger, 2, 8);  // both are connected from now on
    const Rank other(1 - messenger.rank().value());
    std::array<std::byte, 8> out{}, in{};
    std::array<Request, 2> requests;
    {
      const Messenger::Together together(messenger);
      requests = {messenger.post(receive_from(other, 1, in)), messenger.post(send_to(other, 1, out))};
    }
    while (messenger.rank() == 0_rank && !done) std::this_thread::yield();  // it calls nothing meanwhile
    for (const Request& each : requests) messenger.wait(each);
    done = true;
  }));
}

TEST_CASE("zeros that stay behind are there all the same", "[communicator]") {
  for (const tests::Loopback& how : tests::every_way())
    for (const std::size_t bytes : {0U, 1U, 7U, 8U, 9U, 40U, 65537U})
      for (const std::size_t zeros : {std::size_t{0}, std::size_t{1}, bytes / 2, bytes}) {
        if (zeros > bytes) continue;
        CAPTURE(bytes, zeros);
        std::vector<std::byte> out(bytes, std::byte{0x80});  // also that of a negative zero
        std::fill(out.end() - static_cast<std::ptrdiff_t>(zeros), out.end(), std::byte{0});
        const std::size_t kept = bytes_before_zeros(out);
        CHECK(kept >= bytes - zeros);
        CHECK(kept < bytes - zeros + 8);
        std::vector<std::byte> in(bytes, std::byte{1});
        rethrow_first(on_loopback(
            2,
            [&](Messenger& messenger) {
              if (messenger.rank() == 1_rank) {
                messenger.wait(messenger.post(receive_from(0_rank, 1, in)));
                return;
              }
              SendOrder order = send_to(1_rank, 1, out);
              order.keeps_zeros_back = true;
              messenger.wait(messenger.post(order));
            },
            how));
        CHECK(in == out);
      }
}

TEST_CASE("a send does not end before its receive is posted, and keeps no other message waiting",
          "[communicator]") {
  std::atomic<bool> posted{false};
  rethrow_first(on_loopback(2, [&](Messenger& messenger) {
    std::vector<std::byte> byte(1), other(1);
    if (messenger.rank() == 0_rank) {
      const Request waits = messenger.post(send_to(1_rank, 1, byte, {0.5, 0_rank}));
      messenger.wait(messenger.post(send_to(1_rank, 2, other, {0.5, 0_rank})));
      for (int i = 0; i < 100; ++i) demand(!messenger.test(waits) || posted, "a send ended too early");
      const Posted latest = messenger.wait(waits);
      demand(latest.at_s == 0.75 && latest.rank == 1_rank, "the sender was not told who was later");
    } else {
      messenger.wait(messenger.post(receive_from(0_rank, 2, byte, {0.25, 1_rank})));
      posted = true;
      messenger.wait(messenger.post(receive_from(0_rank, 1, byte, {0.75, 1_rank})));
    }
  }));
}

TEST_CASE("threads that wait move the messages of each other", "[communicator]") {
  constexpr std::uint64_t kThreads = 6, kTimes = 40;
  rethrow_first(on_loopback(2,
                            [](Messenger& messenger) {
                              std::vector<std::thread> threads;
                              std::atomic<int> wrong = 0;
                              for (std::uint64_t thread = 0; thread < kThreads; ++thread)
                                threads.emplace_back([&, thread] {
                                  std::vector<std::byte> bytes(1000 * thread + 1);
                                  for (std::uint64_t i = 0; i < kTimes; ++i) {
                                    const std::uint64_t tag = thread << 32U | i;
                                    const bool sends = (i + thread) % 2 == at(messenger.rank());
                                    const Rank peer(1 - messenger.rank().value());
                                    std::fill(bytes.begin(), bytes.end(),
                                              sends ? std::byte(tag) : std::byte{0});
                                    messenger.wait(sends ? messenger.post(send_to(peer, tag, bytes))
                                                         : messenger.post(receive_from(peer, tag, bytes)));
                                    if (bytes.back() != std::byte(tag)) ++wrong;
                                  }
                                });
                              for (std::thread& each : threads) each.join();
                              demand(wrong == 0, "wrong bytes");
                            },
                            {.reads_memory = true}));
}

TEST_CASE("what is cancelled is over, and what was posted again arrives", "[communicator]") {
  rethrow_first(on_loopback(2, [](Messenger& messenger) {
    std::vector<std::byte> bytes(50, std::byte{7}), none(50);
    if (messenger.rank() == 0_rank) {
      const Request never = messenger.post(send_to(1_rank, 1, none));
      messenger.cancel(never);
      messenger.wait(never);
      messenger.wait(
          messenger.post(receive_from(1_rank, 9, none)));  // the other side has withdrawn its receive
      messenger.wait(messenger.post(send_to(1_rank, 2, bytes)));
    } else {
      const Request never = messenger.post(receive_from(0_rank, 2, none));
      messenger.cancel(never);
      std::vector<std::byte> go(50);
      messenger.wait(messenger.post(send_to(0_rank, 9, go)));
      messenger.wait(never);
      std::vector<std::byte> in(50);
      messenger.wait(messenger.post(receive_from(0_rank, 2, in)));
      demand(in == bytes, "the bytes of the second receive");
      demand(none == std::vector<std::byte>(50), "a withdrawn buffer was written");
    }
  }));
}

TEST_CASE("a receive is over, too, whose sender has ended before it answers that it is cancelled",
          "[communicator]") {
  std::atomic<bool> cancelled = false;
  rethrow_first(on_loopback(2, [&](Messenger& messenger) {
    std::vector<std::byte> bytes(50);
    if (messenger.rank() == 0_rank) {
      messenger.wait(messenger.post(send_to(1_rank, 1, bytes)));
      while (!cancelled) std::this_thread::yield();
      return;
    }
    messenger.wait(messenger.post(receive_from(0_rank, 1, bytes)));
    const Request never = messenger.post(receive_from(0_rank, 2, bytes));
    messenger.cancel(never);
    messenger.cancel(never);
    cancelled = true;
    messenger.wait(never);
  }));
}

TEST_CASE("a peer that dies is named", "[communicator]") {
  const auto thrown = on_loopback(3, [&](Messenger& messenger) {
    std::vector<std::byte> bytes(100);
    if (messenger.rank() == 1_rank) messenger.wait(messenger.post(receive_from(0_rank, 1, bytes)));
    if (messenger.rank() == 2_rank) messenger.wait(messenger.post(receive_from(1_rank, 1, bytes)));
  });
  REQUIRE(text_of(thrown[0]).empty());
  REQUIRE_THAT(text_of(thrown[1]), Catch::Contains("rank 1: rank 0 is gone"));
  REQUIRE_THAT(text_of(thrown[2]),
               Catch::Contains("rank 2: rank 0 is gone"));  // not rank 1, which only waited for it
}

TEST_CASE("a peer that is silent too long is named, also by those who wait for one who waits for it",
          "[communicator]") {
  std::atomic<int> failed = 0;
  const auto thrown = on_loopback(
      4,
      [&](Messenger& messenger) {
        std::vector<std::byte> bytes(100);
        if (messenger.rank() == 0_rank) {
          while (failed < 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return;
        }
        try {
          messenger.wait(messenger.post(receive_from(Rank(messenger.rank().value() - 1), 1, bytes)));
        } catch (...) {
          ++failed;
          throw;
        }
      },
      impatient(0.3));
  for (std::size_t i = 1; i < 4; ++i)
    REQUIRE_THAT(text_of(thrown[i]), Catch::Contains("rank 0 does not answer"));
}

TEST_CASE("ranks that wait for each other, or for one who calls nothing, are told", "[communicator]") {
  const auto circle = on_loopback(
      3,
      [&](Messenger& messenger) {
        std::vector<std::byte> bytes(100);
        messenger.wait(messenger.post(receive_from(Rank((messenger.rank().value() + 1) % 3), 1, bytes)));
      },
      impatient(0.3));
  for (const auto& each : circle) REQUIRE_THAT(text_of(each), Catch::Contains("they wait for each other"));

  std::atomic<bool> failed = false;
  const auto idle = on_loopback(
      2,
      [&](Messenger& messenger) {
        std::vector<std::byte> bytes(100), others(100);
        if (messenger.rank() == 1_rank) {
          const Request known = messenger.post(send_to(0_rank, 2, others));
          messenger.wait(known);
          while (!failed) {
            try {
              messenger.test(known);
            } catch (const RunFailure&) {
              return;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          return;
        }
        messenger.wait(messenger.post(receive_from(1_rank, 2, others)));
        try {
          messenger.wait(messenger.post(receive_from(1_rank, 1, bytes)));
        } catch (...) {
          failed = true;
          throw;
        }
      },
      impatient(0.3));
  REQUIRE_THAT(text_of(idle[0]), Catch::Contains("rank 1 has not called it"));
}

TEST_CASE("ranks that call different things are told both calls", "[communicator]") {
  const auto run = [](const CollectiveCall& other, std::size_t count) {
    return on_loopback(
        3,
        [&](Messenger& messenger) {
          Communicator group(messenger, 1, {0_rank, 1_rank, 2_rank});
          std::vector<float> values(messenger.rank() == 1_rank ? count : 6);
          group.run(messenger.rank() == 1_rank ? other : CollectiveCall{},
                    std::as_writable_bytes(std::span(values)));
        },
        impatient(5));
  };
  const auto kinds = run({.kind = CollectiveKind::all_gather}, 6);
  const auto sizes = run({}, 9);
  const auto sums = run({.reduce = ReduceOp::maximum}, 6);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE_THAT(text_of(kinds[i]), Catch::Contains("all_reduce (ring, sum) of 6 fp32 among 3"));
    REQUIRE_THAT(text_of(kinds[i]), Catch::Contains("all_gather (ring) of 6 fp32 among 3"));
    REQUIRE_THAT(text_of(sizes[i]), Catch::Contains("of 9 fp32"));
    REQUIRE_THAT(text_of(sums[i]), Catch::Contains("all_reduce (ring, maximum) of 6 fp32 among 3"));
  }
}

TEST_CASE("a rank that calls something else after the other's call has come is told both", "[communicator]") {
  const auto thrown = on_loopback(2, [](Messenger& messenger) {
    Communicator group(messenger, 1, {0_rank, 1_rank});
    std::vector<float> values(6);
    const auto payload = std::as_writable_bytes(std::span(values));
    std::byte go{};
    if (messenger.rank() == 0_rank) {
      const Request begun = group.start({}, payload);
      messenger.wait(messenger.post(send_to(1_rank, 7, std::span(&go, 1))));
      group.wait(begun);
    } else {
      messenger.wait(messenger.post(receive_from(0_rank, 7, std::span(&go, 1))));
      group.run({.kind = CollectiveKind::all_gather}, payload);
    }
  });
  for (const auto& each : thrown) {
    REQUIRE_THAT(text_of(each), Catch::Contains("all_reduce (ring, sum) of 6 fp32 among 2"));
    REQUIRE_THAT(text_of(each), Catch::Contains("all_gather (ring) of 6 fp32 among 2"));
  }
}

TEST_CASE("two sides that expect different numbers of bytes both fail", "[communicator]") {
  const auto thrown = on_loopback(2, [&](Messenger& messenger) {
    std::vector<std::byte> bytes(8);
    if (messenger.rank() == 0_rank)
      messenger.wait(messenger.post(send_to(1_rank, 1, bytes)));
    else
      messenger.wait(messenger.post(receive_from(0_rank, 1, std::span(bytes).first(7))));
  });
  REQUIRE_THAT(text_of(thrown[0]), Catch::Contains("rank 0 sends 8 bytes, and rank 1 expects 7"));
  REQUIRE_THAT(text_of(thrown[1]), Catch::Contains("rank 0 sends 8 bytes, and rank 1 expects 7"));
}

TEST_CASE("aborting ends what is under way, here and elsewhere, with its reason", "[communicator]") {
  const auto thrown = on_loopback(3, [&](Messenger& messenger) {
    std::vector<std::byte> bytes(8);
    if (messenger.rank() == 0_rank) {
      std::thread stops([&] { messenger.abort("rank 0 ran out of coffee"); });
      stops.join();
    }
    messenger.wait(messenger.post(receive_from(Rank((messenger.rank().value() + 2) % 3), 1, bytes)));
  });
  for (const auto& each : thrown) REQUIRE_THAT(text_of(each), Catch::Contains("rank 0 ran out of coffee"));
}

// ---- strangers

// Ports of the ranks, told by `change` before the ranks start.
struct Ports {
  std::vector<Address> addresses;
  std::function<void(MessengerOptions&)> note() {
    return [this](MessengerOptions& options) {
      addresses.push_back({"127.0.0.1", options.listener.local_port()});
    };
  }
};

TEST_CASE("strangers on a port change nothing", "[communicator]") {
  std::mutex mutex;
  std::vector<std::string> notes;
  Ports ports;
  tests::Loopback how;
  how.change = ports.note();
  how.on_note = [&](Rank, const std::string& what) {
    const std::lock_guard lock(mutex);
    notes.push_back(what);
  };
  std::vector<Socket> silent;  // they stay connected
  std::atomic<bool> ready = false;
  rethrow_first(on_loopback(
      3,
      [&](Messenger& messenger) {
        if (messenger.rank() == 0_rank) {
          std::mt19937_64 random(3);
          for (const Address& address : ports.addresses) {
            for (int i = 0; i < 40; ++i) silent.push_back(connect_to(address, 5));
            for (int i = 0; i < 20; ++i) {
              const Socket noisy = connect_to(address, 5);
              std::vector<std::byte> bytes(random() % 200);
              for (std::byte& each : bytes) each = std::byte(random());
              try {
                noisy.write_all(bytes, 1);
              } catch (const SocketFailure&) {  // it was turned away while it spoke
              }
            }
          }
          ready = true;
        }
        while (!ready) std::this_thread::yield();
        for (int i = 0; i < 20; ++i) pass_round(messenger, 3, 1000);
      },
      how));
}

TEST_CASE("who lacks the token, or says what another has said, is turned away", "[communicator]") {
  std::mutex mutex;
  std::string notes;
  Ports ports;
  tests::Loopback how;
  how.change = ports.note();
  how.on_note = [&](Rank, const std::string& what) {
    const std::lock_guard lock(mutex);
    notes += what + "\n";
  };
  std::atomic<bool> tried = false;
  std::string refused, forged;
  rethrow_first(on_loopback(
      2,
      [&](Messenger& messenger) {
        pass_round(messenger, 2, 100);
        std::thread stranger;
        if (messenger.rank() == 0_rank)
          stranger = std::thread([&] {
            try {  // in the place of rank 1
              const Socket socket = dial(ports.addresses[0], JobToken("guessed"),
                                         {ConnectionPurpose::data, 1_rank, 0_rank, 1}, 5);
              forged = "was let in";
            } catch (const SocketFailure& failure) {
              refused = failure.what();
            }
            // With the token, but as one who is there already.
            const Socket twice = dial(ports.addresses[0], JobToken("loopback"),
                                      {ConnectionPurpose::data, 1_rank, 0_rank, 0}, 5);
            tried = true;
          });
        std::vector<std::byte> byte(1);
        while (!tried) {
          const Request never = messenger.post(receive_from(Rank(1 - messenger.rank().value()), 77, byte));
          messenger.test(never);
          messenger.cancel(never);
          messenger.wait(never);
        }
        for (int i = 0; i < 10; ++i) pass_round(messenger, 2, 1000);
        if (stranger.joinable()) stranger.join();
      },
      how));
  REQUIRE(forged.empty());
  REQUIRE_FALSE(refused.empty());
  REQUIRE_THAT(notes, Catch::Contains("it does not have the token of the job"));
  REQUIRE_THAT(notes, Catch::Contains("rank 1 is connected already"));
}

// ---- frames

Frame random_frame(std::mt19937_64& random) {
  Frame frame;
  frame.kind = static_cast<FrameKind>(random() % (static_cast<std::uint64_t>(FrameKind::unwired) + 1));
  const auto number = [&] { return random() >> (random() % 64); };
  switch (frame.kind) {
    case FrameKind::ready:
      frame.transfer = number();
      frame.key = {number(), number(), number()};
      frame.call = {random() % 2 == 0 ? Call::Kind::message : Call::Kind::collective,
                    static_cast<std::uint8_t>(random()),
                    1,
                    2,
                    3,
                    4,
                    5,
                    number()};
      frame.bytes = number();
      for (std::uint64_t i = random() % 4; i > 0; --i)
        frame.place.keys.push_back(static_cast<std::uint32_t>(i));
      if (!frame.place.keys.empty()) frame.place.address = number();
      frame.posted = {1.5, Rank(static_cast<int>(random() % 1000))};
      break;
    case FrameKind::offer:
      frame.transfer = number();
      frame.sender_number = number();
      frame.offset = number();
      frame.mark = {number(), number(), number()};
      frame.shared = {static_cast<std::uint32_t>(random()), number()};
      for (std::uint64_t i = random() % kPiecesMost; i > 0; --i) frame.pieces.push_back({number(), number()});
      break;
    case FrameKind::answer:
      frame.key = {number(), number(), number()};
      for (std::uint64_t i = random() % 5; i > 0; --i) frame.awaited.push_back({Rank(7), number(), number()});
      break;
    case FrameKind::abort:
      frame.rank = Rank(3);
      frame.text = std::string(random() % 5000, 'x');
      break;
    case FrameKind::data:
      frame.offset = number();
      frame.length = number();
      frame.attempt = static_cast<std::uint32_t>(random());
      frame.is_written = random() % 2 == 0;
      break;
    case FrameKind::wire:
      frame.endpoint = {
          1, 2, 3, 4, static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random()), 7, 8};
      for (std::uint8_t& each : frame.endpoint.gid) each = static_cast<std::uint8_t>(random());
      break;
    case FrameKind::unwired:
      frame.endpoint.rail = static_cast<std::uint8_t>(random());
      frame.came = number();
      frame.text = "the cable is out";
      break;
    default:
      break;
  }
  return frame;
}

TEST_CASE("frames are read as they were written, and nothing else is one", "[communicator]") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const Frame frame = random_frame(random);
    const std::vector<std::byte> bytes = encode(frame);
    const std::span<const std::byte> rest = std::span(bytes).subspan(kFrameLengthBytes);
    const auto read = decode(rest);
    REQUIRE(read.has_value());
    REQUIRE(encode(*read) == bytes);
    REQUIRE(read->key == frame.key);
    REQUIRE(read->pieces == frame.pieces);
    REQUIRE(read->attempt == frame.attempt);
    REQUIRE(read->offset == frame.offset);
    REQUIRE(read->shared == frame.shared);
    REQUIRE(read->endpoint == frame.endpoint);
    REQUIRE(read->came == frame.came);
    REQUIRE(read->awaited == frame.awaited);
    REQUIRE(read->place == frame.place);
    REQUIRE(read->is_written == frame.is_written);
    REQUIRE_FALSE(decode(rest.first(random() % rest.size())).has_value());
    std::vector<std::byte> longer(rest.begin(), rest.end());
    longer.push_back(std::byte{0});
    REQUIRE_FALSE(decode(longer).has_value());
  }
}

}  // namespace
}  // namespace motley
