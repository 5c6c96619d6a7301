// The fabric under contention: flows on one link share its bandwidth; a flow that its own end limits leaves the rest to
// the others.
#include <catch2/catch.hpp>

#include "models/cost/network_cost.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

Cluster cluster_of(const std::string& group) {
  return parse_cluster("name: c\ngroups:\n  - {name: all, chip: anonymous, " + group + "}\n");
}

// Sends messages of `bytes` bytes at once and returns when each arrives.
std::vector<double> arrivals(const Cluster& cluster, const std::vector<std::pair<Rank, Rank>>& pairs,
                             std::int64_t bytes) {
  HandMade p(cluster);
  std::vector<std::pair<Rank, After>> received;
  for (const auto& [from, to] : pairs) {
    p.join(from, to);
    p.program.rank_programs[RankProgramId(from.value())].chunks.front().virtual_stage = 0;
    p.program.rank_programs[RankProgramId(to.value())].chunks.front().virtual_stage = 1;
    p.send(from, kNext, bytes);
    received.emplace_back(to, p.recv(to, kPrevious, bytes));
  }
  const Trace trace = p.run();
  std::vector<double> times;
  for (const auto& [rank, after] : received) times.push_back(event_of(trace, rank, after).end_s);
  return times;
}

double alone_s(const Cluster& cluster, int from, int to, std::int64_t bytes) {
  return message_time_s(message_cost_of(cluster, from, to), route(cluster, from, to), bytes);
}

constexpr std::int64_t kBytes = 1'000'000'000;

}  // namespace

TEST_CASE("a chip far from its NIC is held to its share, and the rest is for the one near it") {
  const Cluster cluster = cluster_of(
      "nodes: 2, chips_per_node: 2, inside: {fabric: nvswitch, bandwidth: 300 GB/s}, "
      "nics: [{kind: infiniband, count: 1, bandwidth: 80 Gb/s, near: [[0]], far: 0.25, reaches: 10 GB/s}]");
  for (const auto& [from, to] : {std::pair{0, 2}, std::pair{1, 3}, std::pair{0, 3}})
    CHECK(arrivals(cluster, {{Rank(from), Rank(to)}}, kBytes)[0] ==
          Approx(alone_s(cluster, from, to, kBytes)).epsilon(1e-9));
  const std::vector<double> both = arrivals(cluster, {{0_rank, 2_rank}, {1_rank, 3_rank}}, kBytes);
  CHECK(both[0] == Approx(1e9 / 7.5e9).epsilon(1e-3));
  CHECK(both[1] == Approx(1e9 / 2.5e9).epsilon(1e-3));
}

TEST_CASE("chips behind one PCIe switch share its uplink, and not what stays behind it") {
  const Cluster cluster = cluster_of(
      "nodes: 1, chips_per_node: 8, inside: {fabric: pcie}, pcie: {generation: 4, lanes: 16, switches: 2}");
  const std::vector<double> apart = arrivals(cluster, {{0_rank, 1_rank}, {2_rank, 3_rank}}, kBytes);
  for (double time : apart) CHECK(time == Approx(alone_s(cluster, 0, 1, kBytes)).epsilon(1e-9));
  const double one = arrivals(cluster, {{0_rank, 4_rank}}, kBytes)[0];
  for (double time : arrivals(cluster, {{0_rank, 4_rank}, {1_rank, 5_rank}}, kBytes))
    CHECK(time == Approx(2 * one).epsilon(0.01));
  for (double time : arrivals(cluster, {{0_rank, 4_rank}, {5_rank, 1_rank}}, kBytes))
    CHECK(time == Approx(one).epsilon(0.01));
}
