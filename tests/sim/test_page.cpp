// What a page shows of a simulated step: nothing is lost or counted twice, and no text ends the page's data.
#include <catch2/catch.hpp>
#include <map>
#include <numeric>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/page/network_use.hpp"
#include "models/page/page.hpp"
#include "models/page/roofline.hpp"
#include "models/page/timeline_rows.hpp"
#include "sim/workers/child.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

std::vector<Job> shown_jobs() {
  return {tiny_job({2, 1, 1}), tiny_job({1, 2, 2}), tiny_job({2, 2, 1}), tiny_job({1, 4, 1})};
}

std::vector<Rank> every_rank(const Program& program) {
  std::vector<Rank> ranks;
  for (const Rank rank : program.ranks.ids()) ranks.push_back(rank);
  return ranks;
}

std::size_t marks_of(const TimelineRows& timeline) {
  return std::accumulate(timeline.rows.begin(), timeline.rows.end(), std::size_t{0},
                         [](std::size_t sum, const TimelineRow& row) { return sum + row.marks.size(); });
}

// Bytes by purpose, wire and whether they are inside computes.
std::map<std::string, double> bytes_of(const std::vector<NetworkUse>& uses) {
  std::map<std::string, double> bytes;
  for (const NetworkUse& use : uses)
    bytes[use.purpose + use.on + (use.inside_computes ? " in" : "")] += use.bytes;
  return bytes;
}

}  // namespace

TEST_CASE("the messages of a page's network are those that the program sends") {
  for (const Job& job : shown_jobs()) {
    const Program program = compile(job);
    double sent = 0;
    for (const Rank rank : program.ranks.ids())
      for (const Stream& stream : program.program_of(rank).streams)
        for (const Instruction& instruction : stream.instructions)
          if (instruction.op() == Op::send) sent += static_cast<double>(payload_bytes(instruction));
    double shown = 0;
    for (const NetworkUse& use : network_use(job, program, simulate_in_child(job, program)))
      if (use.purpose == "pipeline") shown += use.bytes;
    CHECK(shown == sent);
  }
}

TEST_CASE("a folded trace shows the same network as a whole one") {
  for (Job job : shown_jobs()) {
    const Program program = compile(job);
    job.fidelity.fold = false;
    const auto whole = network_use(job, program, simulate_in_child(job, program));
    job.fidelity.fold = true;
    const auto folded = network_use(job, program, simulate_in_child(job, program));
    CHECK(bytes_of(whole) == bytes_of(folded));
  }
}

TEST_CASE("a timeline leaves out only its shortest instructions, and says how many") {
  for (const Job& job : shown_jobs()) {
    const Program program = compile(job);
    const Trace trace = simulate_in_child(job, program);
    const std::vector<Rank> ranks = every_rank(program);
    const TimelineRows whole = timeline_rows(program, trace, ranks);
    CHECK(whole.left_out == 0);
    CHECK(whole.rows.size() == ranks.size());
    const TimelineRows few = timeline_rows(program, trace, ranks, 5);
    CHECK(marks_of(few) <= 5);
    CHECK(marks_of(few) + static_cast<std::size_t>(few.left_out) == marks_of(whole));
    for (const TimelineRow& row : few.rows)
      for (const Mark& mark : row.marks) CHECK(mark.length_s > few.shortest_s);
  }
}

TEST_CASE("the kernels of a roofline have the FLOPs of their passes") {
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  double expected = 0;
  for (const PassCost& pass : price_passes(job, program))
    for (const KernelCost& kernel : pass.kernels)
      expected += kernel.computed_flops * static_cast<double>(pass.times);
  double shown = 0;
  for (const ChipRoofline& roofline : rooflines(job, program))
    for (const RooflinePoint& point : roofline.kernels) shown += point.flops;
  CHECK(shown == Approx(expected));
}

TEST_CASE("a build without D3 makes no page, and says what to install") {
  require_plots("3.5.16");
  CHECK(tests::refusal_on_page([] { require_plots(""); }) ==
        tests::expected_refusal("missing-part: a page where the build has no D3"));
}
