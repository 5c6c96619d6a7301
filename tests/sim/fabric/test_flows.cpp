// Flows that nobody contends with have a heap of their own, the others are SimGrid's: the answer is as if all were.
#include <catch2/catch.hpp>

#include "models/scenario/scenario.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/random_jobs.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

double furthest(const Trace& one, const Trace& other) {
  REQUIRE(one.events.size() == other.events.size());
  double apart = 0;
  for (std::size_t i = 0; i < one.events.size(); ++i) {
    const TraceEvent &a = one.events[i], &b = other.events[i];
    REQUIRE(a.step == b.step);
    apart = std::max({apart, std::abs(a.begin_s - b.begin_s), std::abs(a.matched_s - b.matched_s),
                      std::abs(a.end_s - b.end_s)});
  }
  return apart;
}

// Chips of several nodes that share few NICs send messages of many sizes, some of them at the same instants.
HandMade any_crossing_messages(Dice& dice) {
  const Cluster cluster = parse_cluster(
      "name: nodes\ngroups:\n  - {name: all, chip: anonymous, nodes: 4, chips_per_node: 4, "
      "inside: {fabric: nvswitch, bandwidth: 1 GB/s}, nics: [{kind: infiniband, count: " +
      std::to_string(dice.one_of({1, 2, 4})) + ", bandwidth: 0.8 Gb/s}]}\n");
  HandMade messages(cluster);
  std::vector<int> order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  dice.shuffle(order);
  for (std::size_t i = 0; i < order.size(); i += 2) {
    const Rank sender(order[i]), receiver(order[i + 1]);
    messages.join(sender, receiver);
    messages.program.rank_programs[RankProgramId(sender.value())].chunks.front().virtual_stage = 0;
    messages.program.rank_programs[RankProgramId(receiver.value())].chunks.front().virtual_stage = 1;
    for (int message = 0; message < 4; ++message) {
      const std::int64_t bytes = dice.one_of({1'000, 50'000, 333'333, 1'000'000});
      messages.send(sender, kNext, bytes);
      messages.recv(receiver, kPrevious, bytes);
    }
  }
  return messages;
}

// Nothing: the Program deadlocks.
std::optional<Trace> run(const Job& job, const Program& program, const SimOptions& options) {
  try {
    return simulate_in_child(job, program, options);
  } catch (const RunFailure&) {
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("flows with a heap of their own end when SimGrid alone would end them") {
  SimOptions all_shared;
  all_shared.all_shared = true;
  for (unsigned seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const HandMade messages = any_crossing_messages(dice);
    const Trace own = messages.run(), shared = messages.run(all_shared);
    CHECK(furthest(own, shared) <= 1e-9 * end_of(shared));
  }
}

TEST_CASE("a step takes as long with a heap of its own as if SimGrid shared all its links", "[slow]") {
  SimOptions all_shared;
  all_shared.all_shared = true;
  for (unsigned seed = 0; seed < 120; ++seed) {
    const Job job = any_job(seed);
    CAPTURE(seed, written_out(job));
    const Program program = compile(job);
    const std::optional<Trace> own = run(job, program, {}), shared = run(job, program, all_shared);
    REQUIRE(own.has_value() == shared.has_value());
    if (own) CHECK(furthest(*own, *shared) <= 1e-9 * end_of(*shared));
  }
}
