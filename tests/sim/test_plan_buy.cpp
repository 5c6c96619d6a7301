// What to buy, and fronts of several objectives: the answers are those of planning every addition, and no point of a
// front is worse than another.
#include <catch2/catch.hpp>
#include <numeric>

#include "models/base/refusal.hpp"
#include "models/plan/cluster_edit.hpp"
#include "models/plan/pareto.hpp"
#include "models/plan/purchase.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/priced_jobs.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

const Judge judge_billed = simulating_judge(true);

// Three kinds of nodes: more of the job's first group, and two new ones; of each at most `most`.
PriceList three_kinds(const Job& job, unsigned seed, int most) {
  PriceList list;
  const NodeGroup& first = job.cluster.groups[0];
  list.offers.push_back(
      {first.name, std::nullopt, 0.9 * first.chip.price_per_hour.value * first.chips_per_node, most});
  for (unsigned kind = 1; kind <= 2; ++kind) {
    NodeGroup group = priced_job(seed + 500 + kind).cluster.groups[0];
    group.name = "new-" + std::to_string(kind);
    list.offers.push_back({group.name, group, group.chip.price_per_hour.value * group.chips_per_node, most});
  }
  return list;
}

PlanLimits by(PlanObjective objective) {
  PlanLimits limits;
  limits.evaluations = 6;
  limits.goal = {objective};
  return limits;
}

// The lowest value of all answers, each planned.
double best_of_all(const Job& job, const PriceList& list, const PlanLimits& limits) {
  double best = Goal::kNone;
  for (const std::vector<int>& nodes : additions_of(list, job.cluster))
    for (int retired = -1; retired < static_cast<int>(job.cluster.groups.size()); ++retired) {
      const bool adds = std::accumulate(nodes.begin(), nodes.end(), 0) > 0;
      if (retired == 0 && nodes[0] > 0) continue;
      if (retired >= 0 && job.cluster.groups.size() == 1 && !adds) continue;
      try {
        Purchase purchase;
        purchase.nodes = nodes;
        purchase.retired = retired;
        best = std::min(best, plan(after(purchase, job, list), judge_billed, limits).value());
      } catch (const Refusal& refusal) {
        CHECK(refusal.kind() == "no-plan");
      }
    }
  return best;
}

void check_buying(unsigned first, unsigned last, int most) {
  for (unsigned seed = first; seed < last; ++seed)
    for (const PlanObjective objective : {PlanObjective::price, PlanObjective::time}) {
      if (!tries_every_draw() && objective == PlanObjective::time) continue;
      Job job = priced_job(seed);
      CAPTURE(seed, name_of(objective));
      PriceList list = three_kinds(job, seed, most);
      if (kSanitized) list.offers.resize(1);
      const PlanLimits limits = by(objective);
      const Purchases bought = plan_purchases(job, list, judge_billed, limits);
      REQUIRE(bought.is_whole);
      REQUIRE(bought.answers.at(0).planned);
      CHECK(bought.answers[0].planned->value() == best_of_all(job, list, limits));
      bool has_nothing = false;
      for (const Purchase& answer : bought.answers) {
        has_nothing = has_nothing || answer.what == "nothing";
        if (answer.planned) CHECK(answer.bound <= answer.planned->value() * (1 + 1e-9));
        if (answer.is_pruned) CHECK(answer.bound >= bought.answers[0].planned->value());
      }
      CHECK(has_nothing);
    }
}

}  // namespace

TEST_CASE("the best thing to buy is that of planning every addition", "[plan][slow]") {
  check_buying(1, 2, 1);
}
TEST_CASE(
    "the best thing to buy is that of planning every addition of three kinds, up to three nodes of each",
    "[.additions]") {
  check_buying(1, 3, 3);
}

TEST_CASE("more budget, or more chips, never make a token dearer", "[plan][slow]") {
  for (unsigned seed = 3; seed <= 3; ++seed) {
    const Job job = priced_job(seed);
    PriceList list = three_kinds(job, seed, 1);
    double before = Goal::kNone;
    for (const double budget : {1e-6, 6.0, 40.0}) {
      CAPTURE(seed, budget);
      list.most_usd_per_hour = budget;
      const Purchases bought = plan_purchases(job, list, judge_billed, by(PlanObjective::price));
      const double value = bought.answers.at(0).planned.value().value();
      CHECK(value <= before);
      before = value;
      for (const Purchase& answer : bought.answers) CHECK(answer.usd_per_hour <= budget * (1 + 1e-9));
    }
  }
}

TEST_CASE("additions keep the limits, and none is missing", "[plan]") {
  const Job job = priced_job(2);
  PriceList list = three_kinds(job, 2, 3);
  CHECK(additions_of(list, job.cluster).size() == 64);  // three kinds, four counts
  list.most_chips = 8;
  std::size_t fitting = 0;
  for (const std::vector<int>& nodes : additions_of(PriceList{list.offers}, job.cluster)) {
    std::int64_t chips = 0;
    for (std::size_t i = 0; i < 3; ++i) chips += nodes[i] * chips_of_node(list.offers[i], job.cluster);
    if (chips <= 8) ++fitting;
  }
  CHECK(additions_of(list, job.cluster).size() == fitting);
}

TEST_CASE("a cluster with nodes more, and then without them, is the cluster", "[plan]") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Job job = any_job(seed);
    const int chips = job.cluster.chip_count();
    job.cluster.slow = {Slow{.chip = 0, .factor = 0.5}, Slow{.chip = chips - 1, .factor = 0.25}};
    build_topology(job.cluster);
    NodeGroup group = job.cluster.groups[0];
    group.name = "another";
    const Job larger = with_group(job, group);
    CHECK(larger.cluster.chip_count() == chips + group.nodes * group.chips_per_node);
    CHECK(larger.cluster.speed_of(chips - 1) == job.cluster.speed_of(chips - 1));
    const int last = static_cast<int>(job.cluster.groups.size());
    CHECK(without_group(larger, last).cluster == job.cluster);
    const Job more = with_more_nodes(job, 0, 1);
    const int added = job.cluster.groups[0].chips_per_node;
    CHECK(more.cluster.chip_count() == chips + added);
    if (last > 1) {  // there is another group
      CHECK(more.cluster.speed_of(chips - 1 + added) == job.cluster.speed_of(chips - 1));
      CHECK(without_group(job, 0).cluster.speed_of(without_group(job, 0).cluster.chip_count() - 1) ==
            job.cluster.speed_of(chips - 1));
    }
  }
}

TEST_CASE("no point of a front is worse than another or passes its bound, and the ends are the best plans",
          "[plan][slow]") {
  for (unsigned seed = 1; seed <= (kSanitized ? 1 : 2); ++seed) {
    const Job job = priced_job(seed);
    PlanLimits limits;
    limits.evaluations = kSanitized ? 8 : 20;
    const std::vector<PlanObjective> objectives = {PlanObjective::time, PlanObjective::price};
    PlanLimits asked = limits;
    asked.judge_below = [](const std::vector<Job>&, double) -> std::vector<Verdict> {
      FAIL("a bound was asked for, where every strategy may be a point");
      return {};
    };
    const ParetoFront front = plan_front(job, judge_billed, asked, objectives);
    REQUIRE_FALSE(front.points.empty());
    for (const ParetoPoint& point : front.points) {
      CAPTURE(seed, point.values[0], point.values[1]);
      const Verdict again = judge_billed({point.job}).at(0);
      CHECK(again.step_s == point.values[0]);
      CHECK(again.bill.usd == point.values[1]);
      for (std::size_t i = 0; i < 2; ++i) CHECK(point.bounds[i] <= point.values[i] * (1 + 1e-9));
      for (const ParetoPoint& other : front.points) CHECK_FALSE(dominates(other.values, point.values));
    }
    limits.goal = {PlanObjective::time};
    CHECK(front.points.front().values[0] <= plan(job, judge_billed, limits).value());
    limits.goal = {PlanObjective::price};
    CHECK(front.points.back().values[1] <= plan(job, judge_billed, limits).value());
  }
}
