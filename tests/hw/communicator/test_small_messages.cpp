// Small messages leave before their receivers are ready, between large ones, under the same keys: each receive gets the
// bytes of the send that is meant for it, whatever comes first, and also where some are cancelled.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <random>

#include "hw/communicator/messenger.hpp"
#include "models/base/index.hpp"
#include "tests/support/loopback.hpp"
#include "tests/support/ranks.hpp"

namespace motley {
namespace {

using tests::demand;
using tests::on_loopback;
using tests::receive_from;
using tests::rethrow_first;
using tests::send_to;

struct Draw {
  std::mt19937 engine;
  int below(int end) { return static_cast<int>(engine() % static_cast<unsigned>(end)); }
  bool one_in(int count) { return below(count) == 0; }
};

// The bytes of one message: the same at both ends.
struct Letter {
  std::uint64_t tag = 0;
  std::vector<std::byte> bytes;
};

std::vector<Letter> random_letters(unsigned seed) {
  constexpr std::array<std::size_t, 7> kSizes = {0,     1, 100, kEagerMost - 1, kEagerMost, kEagerMost + 1,
                                                 40'000};
  Draw draw{std::mt19937(seed)};
  std::vector<Letter> letters(200);
  for (Letter& letter : letters) {
    letter.tag = static_cast<std::uint64_t>(draw.below(3));
    letter.bytes.resize(kSizes[at(draw.below(draw.one_in(3) ? 7 : 3))]);
    for (std::byte& each : letter.bytes) each = static_cast<std::byte>(draw.engine());
  }
  return letters;
}

// Does it for the letters in an order of its own, but one after the other for those of one tag.
template <class Post>
void post_in_turns(const std::vector<Letter>& letters, Draw& draw, const Post& post) {
  std::array<std::vector<std::size_t>, 3> by_tag;
  for (std::size_t i = letters.size(); i-- > 0;) by_tag[letters[i].tag].push_back(i);
  for (std::size_t left = letters.size(); left > 0;) {
    auto& some = by_tag[at(draw.below(3))];
    if (some.empty()) continue;
    post(some.back());
    some.pop_back();
    --left;
  }
}

TEST_CASE("small and large messages of one key arrive in the order of their sends", "[communicator]") {
  for (const bool reads_memory : {false, true})
    rethrow_first(on_loopback(
        2,
        [](Messenger& messenger) {
          for (unsigned seed = 0; seed < 60; ++seed) {
            const std::vector<Letter> letters = random_letters(seed);
            Draw draw{std::mt19937(2 * seed + static_cast<unsigned>(messenger.rank().value()))};
            std::vector<std::vector<std::byte>> arrived(letters.size());
            std::vector<Request> requests;
            post_in_turns(letters, draw, [&](std::size_t i) {
              const Letter& letter = letters[i];
              arrived[i].resize(letter.bytes.size());
              requests.push_back(messenger.rank() == 0_rank
                                     ? messenger.post(send_to(1_rank, letter.tag, letter.bytes))
                                     : messenger.post(receive_from(0_rank, letter.tag, arrived[i])));
              if (draw.one_in(4)) messenger.test(requests[at(draw.below(static_cast<int>(requests.size())))]);
              if (draw.one_in(60)) std::this_thread::sleep_for(std::chrono::microseconds(300));
            });
            for (const Request& request : requests) messenger.wait(request);
            for (std::size_t i = 0; messenger.rank() == 1_rank && i < letters.size(); ++i)
              demand(arrived[i] == letters[i].bytes, "a receive has the bytes of another message");
          }
        },
        {.reads_memory = reads_memory}));
}

// The first of two has its receiver and waits behind a large message; the second overtakes it.
TEST_CASE("a small message that overtakes another of its key is not taken for it", "[communicator]") {
  std::atomic<bool> posted = false;
  rethrow_first(on_loopback(2, [&](Messenger& messenger) {
    std::vector<std::byte> large(std::size_t{32} << 20U), go(1), first(1), second(1);
    std::vector<Request> requests;
    if (messenger.rank() == 0_rank) {
      messenger.wait(messenger.post(receive_from(1_rank, 3, go)));
      first[0] = std::byte{1};
      second[0] = std::byte{2};
      requests = {messenger.post(send_to(1_rank, 1, large)), messenger.post(send_to(1_rank, 2, first)),
                  messenger.post(send_to(1_rank, 2, second))};
      posted = true;
    } else {
      requests = {messenger.post(receive_from(0_rank, 1, large)),
                  messenger.post(receive_from(0_rank, 2, first))};
      messenger.wait(messenger.post(send_to(0_rank, 3, go)));
      for (int i = 0; i < 30'000 && !posted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      requests.push_back(messenger.post(receive_from(0_rank, 2, second)));
    }
    for (const Request& each : requests) messenger.wait(each);
    demand(first[0] == std::byte{1} && second[0] == std::byte{2}, "two messages were exchanged");
  }));
}

// The second rank hears of the receive before it has even reached the first to send to it.
TEST_CASE("once a small message is sent, its sender need do nothing more for it", "[communicator]") {
  rethrow_first(on_loopback(2, [&](Messenger& messenger) {
    static std::atomic<bool> came;
    came = false;
    std::vector<std::byte> byte(1);
    if (messenger.rank() == 0_rank) {
      messenger.wait(messenger.post(receive_from(1_rank, 1, byte)));
      came = true;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      messenger.wait(messenger.post(send_to(0_rank, 1, byte)));
      for (int i = 0; i < 30'000 && !came; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      demand(came, "the message has not left");
    }
  }));
}

TEST_CASE("once small messages have come, their receiver need do nothing more for them", "[communicator]") {
  for (const bool is_early : {false, true})
    rethrow_first(on_loopback(2, [&](Messenger& messenger) {
      static std::atomic<bool> are_sent;
      are_sent = false;
      std::vector<std::byte> bytes(3);
      std::vector<Request> requests;
      const bool sends = messenger.rank() == 0_rank;
      if (sends != is_early) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (std::size_t i = 0; i < bytes.size(); ++i)
        requests.push_back(sends ? messenger.post(send_to(1_rank, 1, std::span(bytes).subspan(i, 1)))
                                 : messenger.post(receive_from(0_rank, 1, std::span(bytes).subspan(i, 1))));
      for (const Request& each : requests) messenger.wait(each);
      if (sends) are_sent = true;
      for (int i = 0; i < 30'000 && !are_sent; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      demand(are_sent, "the sender does not know that its messages have come");
    }));
}

constexpr std::uint64_t kEnough = 99;

bool is_cancelled(unsigned seed, std::uint32_t number) {
  return std::mt19937(seed * 1000 + number)() % 3 == 0;
}

// Sends numbers, every third of which is cancelled, until the other side has had enough.
void send_numbers(Messenger& messenger, unsigned seed, std::size_t bytes) {
  Draw draw{std::mt19937(seed)};
  std::byte word{};
  const Request enough = messenger.post(receive_from(1_rank, kEnough + seed, std::span(&word, 1)));
  std::vector<std::vector<std::byte>> letters;
  letters.reserve(5000);
  std::vector<Request> sent;
  std::vector<std::uint32_t> regretted;
  const auto cancel_last = [&] {
    messenger.cancel(sent[regretted.back()]);
    regretted.pop_back();
  };
  while (!messenger.test(enough)) {
    if (letters.size() == letters.capacity()) continue;
    const auto number = static_cast<std::uint32_t>(sent.size());
    letters.emplace_back(bytes);
    std::memcpy(letters.back().data(), &number, sizeof number);
    sent.push_back(messenger.post(send_to(1_rank, seed, letters.back())));
    if (is_cancelled(seed, number)) regretted.push_back(number);
    while (!regretted.empty() && draw.one_in(2)) cancel_last();
  }
  for (const Request& each : sent) messenger.cancel(each);
  for (const Request& each : sent) messenger.wait(each);
}

// Returns the numbers that came, of receives some of which were cancelled.
std::vector<std::uint32_t> receive_numbers(Messenger& messenger, unsigned seed, std::size_t bytes) {
  constexpr std::uint32_t kNothing = 0xffffffff;
  Draw draw{std::mt19937(seed + 500)};
  std::vector<std::vector<std::byte>> letters(60, std::vector<std::byte>(bytes, std::byte{0xff}));
  std::vector<Request> posted;
  for (auto& letter : letters) {
    posted.push_back(messenger.post(receive_from(0_rank, seed, letter)));
    if (draw.one_in(3)) messenger.cancel(posted[at(draw.below(static_cast<int>(posted.size())))]);
    if (draw.one_in(3)) messenger.test(posted[0]);
    if (draw.one_in(20)) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  for (const Request& each : posted) messenger.wait(each);
  std::vector<std::uint32_t> numbers;
  for (const auto& letter : letters) {
    std::uint32_t number = kNothing;
    std::memcpy(&number, letter.data(), sizeof number);
    if (number != kNothing) numbers.push_back(number);
  }
  std::byte word{};
  messenger.wait(messenger.post(send_to(0_rank, kEnough + seed, std::span(&word, 1))));
  return numbers;
}

TEST_CASE("of messages that are cancelled each comes once or never, and the others come", "[communicator]") {
  for (const std::size_t bytes : {std::size_t{8}, kEagerMost + 1})
    rethrow_first(on_loopback(2, [&](Messenger& messenger) {
      for (unsigned seed = 0; seed < 40; ++seed) {
        if (messenger.rank() == 0_rank) {
          send_numbers(messenger, seed, bytes);
          continue;
        }
        const auto numbers = receive_numbers(messenger, seed, bytes);
        demand(!numbers.empty(), "nothing came");
        std::uint32_t next = 0;
        for (const std::uint32_t number : numbers) {
          demand(number >= next, "a message came twice, or before an older one");
          for (; next < number; ++next) demand(is_cancelled(seed, next), "a message is missing");
          ++next;
        }
      }
    }));
}

TEST_CASE("a rank that asks for nothing keeps a limited number of small messages", "[communicator]") {
  std::atomic<int> gone = 0;
  tests::Loopback how;
  how.on_send = [&](Rank, const SendOrder& order, Path) { gone += order.key.operation == 1 ? 1 : 0; };
  rethrow_first(on_loopback(
      2,
      [&](Messenger& messenger) {
        std::vector<std::byte> bytes(10), go(1);
        std::vector<Request> requests;
        for (int i = 0; messenger.rank() == 0_rank && i < 1000; ++i)
          requests.push_back(messenger.post(send_to(1_rank, 1, bytes)));
        if (messenger.rank() == 0_rank) {
          demand(gone == 64, "more or fewer have gone than another rank keeps");
          messenger.wait(messenger.post(send_to(1_rank, 2, go)));
        } else {
          messenger.wait(messenger.post(receive_from(0_rank, 2, go)));
          for (int i = 0; i < 1000; ++i) requests.push_back(messenger.post(receive_from(0_rank, 1, bytes)));
        }
        for (const Request& each : requests) messenger.wait(each);
      },
      how));
  REQUIRE(gone == 1000);
}

}  // namespace
}  // namespace motley
