// The TCP transport and the ring on it: sizes at every boundary, the rendezvous of sends and recvs, and the reports of
// a peer that is dead, silent or in another transfer.
#include <atomic>
#include <catch2/catch.hpp>

#include "hw/collective/ring.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/loopback.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

std::byte pattern(std::size_t i, Rank rank) {
  return static_cast<std::byte>(i * 31 + i / 251 + 7 * at(rank));
}

// Every rank sends to the next rank and receives from the previous one at the same time.
void pass_round(Transport& transport, int ranks, std::size_t bytes) {
  const Rank rank = transport.rank(), next((rank.value() + 1) % ranks),
             previous((rank.value() + ranks - 1) % ranks);
  std::vector<std::byte> out(bytes), in(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = pattern(i, rank);
  transport.exchange({Channel::data_group, bytes, next, out, previous, in}, {1.0 + rank.value(), rank});
  for (std::size_t i = 0; i < bytes; ++i)
    if (in[i] != pattern(i, previous)) throw std::logic_error("wrong byte");
}

std::string message_of(const std::exception_ptr& thrown) {
  if (!thrown) return "";
  try {
    std::rethrow_exception(thrown);
  } catch (const RunFailure& failure) {
    return failure.what();
  }
}

}  // namespace

TEST_CASE("bytes of any number arrive whole, whatever the number of ranks") {
  const std::size_t bytes = GENERATE(0U, 1U, 7U, 12345U, 65535U, 65536U, 65537U, 8U << 20U);
  const int ranks = GENERATE(1, 2, 3, 5);
  const auto thrown = tests::on_loopback(ranks, tests::ring_links(ranks), [&](Transport& transport) {
    if (ranks > 1) pass_round(transport, ranks, bytes);
  });
  REQUIRE_NOTHROW(tests::rethrow_first(thrown));
}

TEST_CASE("zeros that stay behind are there all the same") {
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
      const std::vector<Link> links = {{0_rank, 1_rank, Channel::activation}};
      tests::rethrow_first(tests::on_loopback(2, links, [&](Transport& transport) {
        Exchange exchange;
        exchange.keeps_zeros_back = transport.rank() == 0_rank;
        if (transport.rank() == 0_rank) {
          exchange.to = 1_rank;
          exchange.outgoing = out;
        } else {
          exchange.from = 0_rank;
          exchange.incoming = in;
        }
        transport.exchange(exchange, {0, transport.rank()});
      }));
      CHECK(in == out);
    }
}

TEST_CASE("a send does not end before its recv is posted") {
  std::atomic<bool> posted{false}, early{false};
  const std::vector<Link> links = {{0_rank, 1_rank, Channel::activation},
                                   {0_rank, 1_rank, Channel::gradient}};
  const auto thrown = tests::on_loopback(2, links, [&](Transport& transport) {
    std::vector<std::byte> byte(1);
    if (transport.rank() == 0_rank) {
      // Another channel is free while this one waits.
      std::thread waits([&] {
        transport.exchange({Channel::activation, 1, 1_rank, byte, {}, {}}, {0.5, 0_rank});
        if (!posted) early = true;
      });
      std::vector<std::byte> other(1);
      transport.exchange({Channel::gradient, 2, 1_rank, other, {}, {}}, {0.5, 0_rank});
      waits.join();
    } else {
      transport.exchange({Channel::gradient, 2, {}, {}, 0_rank, byte}, {0.5, 1_rank});
      posted = true;
      const Posted latest =
          transport.exchange({Channel::activation, 1, {}, {}, 0_rank, byte}, {0.25, 1_rank});
      if (latest.at_s != 0.5 || latest.rank != 0_rank) throw RunFailure("the later side was not told");
    }
  });
  REQUIRE_NOTHROW(tests::rethrow_first(thrown));
  REQUIRE_FALSE(early);
}

TEST_CASE("a peer that dies is named") {
  const std::vector<Link> links = {{0_rank, 1_rank, Channel::activation}};
  const auto thrown = tests::on_loopback(2, links, [&](Transport& transport) {
    std::vector<std::byte> bytes(100);
    if (transport.rank() == 1_rank) transport.exchange({Channel::activation, 1, {}, {}, 0_rank, bytes}, {});
  });
  REQUIRE(message_of(thrown[0]).empty());
  REQUIRE_THAT(message_of(thrown[1]), Catch::Contains("rank 1: rank 0 is gone"));
}

TEST_CASE("a peer that is silent too long is named") {
  const std::vector<Link> links = {{0_rank, 1_rank, Channel::gradient}};
  std::atomic<bool> ended{false};
  const auto thrown = tests::on_loopback(
      2, links,
      [&](Transport& transport) {
        std::vector<std::byte> bytes(100);
        if (transport.rank() == 0_rank) {
          while (!ended) std::this_thread::yield();
        } else {
          try {
            transport.exchange({Channel::gradient, 1, {}, {}, 0_rank, bytes}, {});
          } catch (...) {
            ended = true;
            throw;
          }
        }
      },
      0.2);
  REQUIRE_THAT(message_of(thrown[1]), Catch::Contains("rank 0 was silent for 0.2 s, channel gradient"));
}

TEST_CASE("two sides that speak of different transfers both fail") {
  const std::vector<Link> links = {{0_rank, 1_rank, Channel::activation}};
  const auto thrown = tests::on_loopback(2, links, [&](Transport& transport) {
    std::vector<std::byte> bytes(8);
    if (transport.rank() == 0_rank)
      transport.exchange({Channel::activation, 1, 1_rank, bytes, {}, {}}, {});
    else
      transport.exchange({Channel::activation, 2, {}, {}, 0_rank, bytes}, {});
  });
  REQUIRE_THAT(message_of(thrown[0]), Catch::Contains("spoke of transfer 2 of 8 bytes"));
  REQUIRE(thrown[1]);
}

TEST_CASE("aborting ends an exchange under way") {
  const std::vector<Link> links = {{0_rank, 1_rank, Channel::activation}};
  std::atomic<bool> ended{false};
  const auto thrown = tests::on_loopback(2, links, [&](Transport& transport) {
    std::vector<std::byte> bytes(8);
    if (transport.rank() == 0_rank) {
      std::thread stops([&] { transport.abort(); });
      try {
        transport.exchange({Channel::activation, 1, 1_rank, bytes, {}, {}}, {});
      } catch (...) {
        stops.join();
        ended = true;
        throw;
      }
    }
    while (!ended) std::this_thread::yield();
  });
  REQUIRE_THAT(message_of(thrown[0]), Catch::Contains("stopped"));
}

TEST_CASE("after a ring all-reduce every rank holds each contribution exactly once") {
  const int ranks = GENERATE(1, 2, 3, 4, 5, 6, 7, 8, 9);
  for (std::size_t count : {0U, 1U, 2U, 5U, 9U, 10U, 1000U}) {
    Group group{GroupKind::data, {}};
    for (Rank rank : IdRange<Rank>(at(ranks))) group.ranks.push_back(rank);
    const auto thrown = tests::on_loopback(ranks, tests::ring_links(ranks), [&](Transport& transport) {
      const Rank rank = transport.rank();
      // Contribution r is 4^r: the base-4 digits of a sum say how often it has each contribution. Exact up to 2^24.
      std::vector<float> digits(count, static_cast<float>(1 << (2 * rank.value())));
      std::vector<float> maxima(count);
      for (std::size_t i = 0; i < count; ++i)
        maxima[i] = static_cast<float>((i + at(rank)) % static_cast<std::size_t>(ranks));
      const Posted latest = ring_all_reduce(transport, group, Channel::data_group, 1, ReduceOp::sum, digits,
                                            {1.0 + rank.value(), rank});
      ring_all_reduce(transport, group, Channel::data_group, 2, ReduceOp::maximum, maxima, {});
      float once = 0;
      for (int r = 0; r < ranks; ++r) once += static_cast<float>(1 << (2 * r));
      for (float value : digits)
        if (value != once) throw std::logic_error("not each contribution once");
      for (float value : maxima)
        if (value != static_cast<float>(ranks - 1)) throw std::logic_error("not the maximum");
      if (latest.rank != Rank(ranks - 1)) throw std::logic_error("the last to come was not known");
    });
    INFO(ranks << " ranks, " << count << " values");
    REQUIRE_NOTHROW(tests::rethrow_first(thrown));
  }
}

TEST_CASE("the links of a program are those its ranks use, each once") {
  const Program program = compile(tests::tiny_job({1, 2, 2}));
  const auto links = links_of(program);
  REQUIRE(std::is_sorted(links.begin(), links.end()));
  REQUIRE(std::adjacent_find(links.begin(), links.end()) == links.end());
  // Two pipelines with one link for activations and one for gradients, two data rings of two ranks, and two rings of
  // tied embeddings.
  REQUIRE(links.size() == 4 + 4 + 4);
  REQUIRE(links_of(compile(tests::tiny_job({1, 1, 1}))).empty());
}
