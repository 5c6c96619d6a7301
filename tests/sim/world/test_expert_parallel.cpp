// Exchanges of tokens with experts in the Sim world: their time on an idle fabric, and folding of the ranks that
// exchange them.
#include <catch2/catch.hpp>

#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/network_cost.hpp"
#include "models/report/report.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

Job divided(std::int64_t parts, double skew, double room) {
  Job job = tests::tiny_job({1, 1, 4}, tests::tiny_variant("deepseek-v3"));
  job.strategy.templates[0].stages[0].expert_parallel = parts;
  job.train.expert_skew = skew;
  job.train.expert_room = room;
  return job;
}

double exchanging_s(const Job& job) {
  const Program program = compile(job);
  return make_report(job, program, simulate_in_child(job, program)).breakdown.at(0).expert_parallel_s;
}

}  // namespace

TEST_CASE("exchanges on an idle fabric take what is expected of them, not what memory has room for") {
  for (CollectiveLevel level : {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded})
    for (std::int64_t parts : {2, 4})
      for (double skew : {0.0, 1.0}) {
        Job job = divided(parts, skew, 0);
        job.fidelity.data_parallel = level;
        const Program program = compile(job);
        const Group& group = program.groups[program.ranks[0_rank].groups.get(kExpertGroup).value()];
        const RingCost pairs = pairwise_cost(program, job.cluster, group);
        double closed_s = 0, most_s = 0;
        const Stream& computes = program.rank_programs.front().streams[kComputeStream];
        for (const Instruction& instruction : computes.instructions) {
          const Collective* collective = instruction.as<Collective>();
          if (collective == nullptr) continue;
          closed_s += collective_s(CollectiveKind::all_to_all, pairs, expected_bytes(*collective));
          most_s += collective_s(CollectiveKind::all_to_all, pairs, collective->bytes);
        }
        CAPTURE(static_cast<int>(level), parts, skew);
        CHECK(exchanging_s(job) == Approx(closed_s).epsilon(1e-6));
        CHECK(closed_s < most_s);
      }
}

TEST_CASE("skewed routing costs the fabric more, room for more costs memory alone") {
  CHECK(exchanging_s(divided(4, 1, 0)) > exchanging_s(divided(4, 0, 0)));
  CHECK(exchanging_s(divided(4, 0, 1.5)) == Approx(exchanging_s(divided(4, 0, 0))).epsilon(1e-12));
  const auto peak = [](const Job& job) { return check(compile(job), job.cluster).at(0).peak; };
  CHECK(peak(divided(4, 0, 1.5)) < peak(divided(4, 0, 0)));
}

TEST_CASE("a strategy that divides nothing exchanges nothing") { CHECK(exchanging_s(divided(1, 1, 0)) == 0); }

TEST_CASE("tokens that go once to each node are exchanged sooner, and folded ranks exchange them alike") {
  for (CollectiveLevel level : {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded})
    for (const int nodes : {1, 2}) {
      Job job = divided(4, 0, 0);
      NodeGroup& group = job.cluster.groups[0];
      group.nodes = nodes;
      group.chips_per_node = 4 / nodes;
      if (nodes > 1) group.nics = {{NicKind::infiniband, 2, 1e8, 5e-6}};
      build_topology(job.cluster);
      job.fidelity.data_parallel = level;
      const double copies_s = exchanging_s(job);
      job.fidelity.expert_copies = ExpertCopies::node;
      const double once_s = exchanging_s(job);
      job.fidelity.fold = true;
      CAPTURE(static_cast<int>(level), nodes);
      CHECK(once_s < copies_s);
      CHECK(simulate_in_child(job, compile(job)).stand_ins.size() == 1);
      CHECK(exchanging_s(job) == Approx(once_s).epsilon(1e-6));
    }
}

TEST_CASE(
    "side by side, only the first forward and the last backward wait for exchanges shorter than computes") {
  Job job = divided(4, 0, 0);
  job.train.global_batch = 48;
  job.strategy = expand(job.transformer, job.train, 1, 1, 4);
  job.strategy.templates[0].stages[0].expert_parallel = 4;
  job.cluster.groups[0].inside = {FabricKind::loopback, 1e12, 1e-9};
  build_topology(job.cluster);
  const auto report_of = [&](bool overlap) {
    job.strategy.overlap_experts = overlap;
    const Program program = compile(job);
    return make_report(job, program, simulate_in_child(job, program));
  };
  const Report plain = report_of(false), overlapped = report_of(true);
  const auto micro_batches = static_cast<double>(job.strategy.templates[0].micro_batches);
  REQUIRE(micro_batches == 6);
  CHECK(overlapped.breakdown[0].expert_parallel_s ==
        Approx(plain.breakdown[0].expert_parallel_s / micro_batches).epsilon(1e-6));
  CHECK(plain.iteration_s - overlapped.iteration_s ==
        Approx(plain.breakdown[0].expert_parallel_s * (1 - 1 / micro_batches)).epsilon(1e-6));
}
