// Links out of what bench comm measured: known figures come back, and mistakes are refused where they stand.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "models/base/refusal.hpp"
#include "models/calibration/comm_links.hpp"
#include "models/cost/network_cost.hpp"
#include "tests/refusals/pages.hpp"

using namespace motley;

namespace {

constexpr double kSoftware_s = 30e-6;  // of a message over Ethernet

std::string message(const char* allowed, bool leaves_host, double bytes, const LinkFigures& link) {
  return fmt::format(
      R"({{"operation": "message", "algorithm": "", "allowed": "{}", "path": "tcp", "bytes": {:.0f}, "seconds": {},)"
      R"( "spread": 0.01, "algbw_bytes_per_s": 1, "busbw_bytes_per_s": 1, "cpu_s": 0, "peer": 1, "leaves_host": {}}})",
      allowed, bytes, link.latency_s + bytes / link.bytes_per_s, leaves_host);
}

std::string messages(const char* allowed, bool leaves_host, const LinkFigures& link) {
  std::string text;
  for (const double bytes : {0.0, 1e6, 4e6})
    text += (text.empty() ? "" : ",\n") + message(allowed, leaves_host, bytes, link);
  return text;
}

std::string comm(int ranks, int hosts, const std::string& calls) {
  return fmt::format(
      "{{\"schema\": \"motley.bench_comm/1\",\n\"ranks\": {},\n\"hosts\": {},\n\"ranks_per_host\": {},\n"
      "\"calls\": [\n{}]}}\n",
      ranks, hosts, ranks / hosts, calls);
}

// A collective says nothing of links, nor does a message out of memory of another kind.
std::string with_collective(const std::string& calls) {
  return R"({"operation": "all_reduce", "algorithm": "ring", "allowed": "tcp", "path": "tcp", "memory": "host",)"
         R"( "bytes": 8, "seconds": 9, "chosen": "ring", "predicted_s": 1},)"
         R"({"operation": "message", "algorithm": "", "allowed": "tcp", "path": "tcp", "memory": "guarded",)"
         R"( "bytes": 8, "seconds": 9, "peer": 1, "leaves_host": false},)" +
         ("\n" + calls);
}

double message_s(const CommLinks& links, std::int64_t bytes, bool leaves_host) {
  Cluster cluster;
  cluster.name = "pair";
  cluster.groups = {hosts_with(load_chip("host-core"), links)};
  build_topology(cluster);
  const int peer = leaves_host ? links.ranks_per_host : 1;
  return message_time_s(message_cost_of(cluster, 0, peer), route(cluster, 0, peer, {}), bytes);
}

std::string kind_of_refusal(const std::string& text) {
  try {
    read_comm_links(text, "comm.json");
  } catch (const Refusal& refusal) {
    return refusal.kind();
  }
  return "";
}

std::string comm_refusal(const std::string& text) {
  try {
    read_comm_links(text, "comm.json");
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "";
}

}  // namespace

TEST_CASE("known latency and bandwidth come back, inside a host and between hosts, and simulations have them",
          "[calibration]") {
  std::mt19937_64 random(15);
  std::uniform_real_distribution<double> power(0, 2);
  for (int draw = 0; draw < 50; ++draw) {
    const LinkFigures inside{1e-6 * std::pow(10, power(random)), 2e9 * std::pow(10, power(random))};
    const LinkFigures between{kSoftware_s + 1e-6 * std::pow(10, power(random)),
                              1e7 * std::pow(10, power(random))};
    const int each = 1 + draw % 3;
    std::string calls = messages("tcp", true, between);
    if (each > 1) calls += ",\n" + messages("tcp", false, inside);
    const CommLinks links = read_comm_links(comm(2 * each, 2, with_collective(calls)), "comm.json");
    CAPTURE(draw, inside.latency_s, inside.bytes_per_s, between.latency_s, between.bytes_per_s);
    CHECK(links.hosts == 2);
    CHECK(links.ranks_per_host == each);
    REQUIRE(links.inside_host.has_value() == (each > 1));
    if (each > 1) {
      CHECK(links.inside_host->latency_s == Approx(inside.latency_s));
      CHECK(links.inside_host->bytes_per_s == Approx(inside.bytes_per_s));
      CHECK(message_s(links, 0, false) == Approx(inside.latency_s).epsilon(2e-3));
      CHECK(message_s(links, 1'000'000, false) ==
            Approx(inside.latency_s + 1e6 / inside.bytes_per_s).epsilon(2e-3));
    }
    REQUIRE(links.between_hosts.has_value());
    CHECK(links.between_hosts->latency_s == Approx(between.latency_s));
    CHECK(links.between_hosts->bytes_per_s == Approx(between.bytes_per_s));
    CHECK(message_s(links, 0, true) == Approx(between.latency_s).epsilon(2e-3));
    // Large messages take as long as measured, and what sockets add to all but the smallest.
    CHECK(message_s(links, 1'000'000'000, true) >=
          (1 - 2e-3) * (between.latency_s + 1e9 / between.bytes_per_s));
    CHECK(message_s(links, 1'000'000'000, true) <= 1.02 * (between.latency_s + 1e9 / between.bytes_per_s));
  }
}

TEST_CASE("better links never make a message slower", "[calibration]") {
  std::mt19937_64 random(16);
  std::uniform_real_distribution<double> power(0, 3), better(0.1, 1);
  for (int draw = 0; draw < 100; ++draw) {
    const LinkFigures worse{1e-6 * std::pow(10, power(random)), 1e6 * std::pow(10, power(random))};
    const LinkFigures good{worse.latency_s * better(random), worse.bytes_per_s / better(random)};
    const auto links_with = [](const LinkFigures& link) {
      return read_comm_links(comm(4, 2, messages("tcp", true, link) + ",\n" + messages("tcp", false, link)),
                             "");
    };
    const CommLinks of_worse = links_with(worse), of_good = links_with(good);
    for (const bool leaves_host : {false, true})
      for (const std::int64_t bytes : {0, 1000, 1'000'000, 1'000'000'000}) {
        CAPTURE(worse.latency_s, worse.bytes_per_s, good.latency_s, good.bytes_per_s, leaves_host, bytes);
        CHECK(message_s(of_good, bytes, leaves_host) <= 1.001 * message_s(of_worse, bytes, leaves_host));
      }
  }
}

TEST_CASE("of several paths the one counts that a run takes", "[calibration]") {
  const LinkFigures shm{1e-5, 4e9}, tcp{1e-4, 1e8}, verbs{5e-5, 1e9};
  const std::string inside = messages("tcp", false, tcp) + ",\n" + messages("shm", false, shm);
  const std::string between = messages("shm", true, shm) + ",\n" + messages("tcp", true, tcp);
  const CommLinks sockets = read_comm_links(comm(4, 2, inside + ",\n" + between), "comm.json");
  CHECK(sockets.inside_host->bytes_per_s == Approx(shm.bytes_per_s));
  CHECK(sockets.between_hosts->bytes_per_s == Approx(tcp.bytes_per_s));
  CHECK(hosts_with(load_chip("host-core"), sockets).nics.at(0).kind == NicKind::ethernet);
  const CommLinks rdma = read_comm_links(
      comm(4, 2, inside + ",\n" + between + ",\n" + messages("verbs", true, verbs)), "comm.json");
  CHECK(rdma.between_hosts->bytes_per_s == Approx(verbs.bytes_per_s));
  CHECK(hosts_with(load_chip("host-core"), rdma).nics.at(0).kind == NicKind::roce);
  const CommLinks one = read_comm_links(comm(2, 1, inside), "comm.json");
  CHECK(!one.between_hosts);
  CHECK(hosts_with(load_chip("host-core"), one).nics.empty());
}

TEST_CASE("bad-comm: files that tell no links are refused where they say so", "[calibration]") {
  const std::string near = messages("tcp", false, {1e-5, 1e9}), far = messages("tcp", true, {1e-4, 1e8});
  const std::string hint =
      "\n  hint: motley bench comm --operations message --bytes '8 B,1 MiB,4 MiB' --json";
  CHECK(kind_of_refusal(comm(4, 2, near)) == "bad-comm");
  CHECK(tests::refusal_on_page([&] { read_comm_links(comm(4, 2, near), "comm.json"); }) ==
        tests::expected_refusal("bad-comm: messages between hosts that were not measured"));
  CHECK(comm_refusal(comm(4, 2, far)) == "comm.json:5:1: no messages inside a host were measured" + hint);
  CHECK(comm_refusal("{\"schema\": \"motley.train/1\", \"ranks\": 1, \"hosts\": 1, \"ranks_per_host\": 1, "
                     "\"calls\": []}") ==
        "comm.json:1:12: `motley.train/1` is not motley.bench_comm/1" + hint);
  std::string unequal = comm(4, 2, near);
  unequal.replace(unequal.find("\"ranks\": 4"), 10, "\"ranks\": 3");
  CHECK(comm_refusal(unequal) == "comm.json:2:10: 3 ranks are not 2 on each of 2 hosts" + hint);
  const std::string few =
      message("tcp", false, 0, {1e-5, 1e9}) + ",\n" + message("tcp", false, 1e6, {1e-5, 1e9});
  CHECK(comm_refusal(comm(2, 1, few)) ==
        "comm.json:5:1: messages inside a host (tcp) tell no latency and bandwidth: a size below 100 B and "
        "two above "
        "100 kB are needed, and the largest takes longest" +
            hint);
  std::string instant = comm(2, 1, near);
  instant.replace(instant.find("\"seconds\": 1e-05"), 16, "\"seconds\": 1e-20");
  CHECK_THAT(comm_refusal(instant), Catch::Contains("no message takes 1e-20 s"));
  std::string negative = comm(2, 1, near);
  negative.replace(negative.find("\"seconds\": ") + 11, 1, "-");
  CHECK_THAT(comm_refusal(negative), Catch::StartsWith("comm.json:6:"));
  CHECK_THAT(comm_refusal("{\"schema\": "), Catch::StartsWith("comm.json:"));
}
