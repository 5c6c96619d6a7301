// Layers shared out among stages, against every way to do it; and what stages in a V have in flight, against what the
// schedule's evaluation counts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "models/base/index.hpp"
#include "models/plan/layer_shares.hpp"
#include "models/plan/v_stages.hpp"
#include "models/schedule/schedule.hpp"
#include "tests/support/dice.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct LayerCase {
  std::vector<StageClass> classes;
  std::int64_t layers = 0;
  std::int64_t least = 0;  // layers of a stage
};

// One to three classes of one to three stages, for at most 14 layers. In some, recompute makes stages slower than a
// line says.
LayerCase random_layer_case(unsigned seed) {
  Dice dice(seed);
  LayerCase one;
  one.layers = dice.one_of({4, 7, 10, 14});
  one.least = dice.one_of({0, 2, 2});
  for (int i = dice.one_of({1, 2, 3}); i > 0; --i) {
    StageClass& each = one.classes.emplace_back();
    each.stages = dice.one_of({1, 1, 2, 3});
    each.once_s = dice.one_of({0.0, 0.5, 2.0});
    each.layer_s = dice.one_of({0.3, 1.0, 1.7});
    each.passed_on_share = dice.one_of({0.6, 1.0});
    each.most_layers = dice.one_of({1, 3, 5, 20});
    if (!dice.once_in(3)) continue;
    for (std::int64_t held = 0; held <= one.layers; ++held)
      each.with_layers.push_back(each.once_s + static_cast<double>(held) * each.layer_s +
                                 0.4 * static_cast<double>(std::max<std::int64_t>(0, held - 3)));
  }
  return one;
}

// The least longest stage of all ways to give layers to stages one by one.
double least_by_exhaustion(const LayerCase& one) {
  std::vector<const StageClass*> stages;
  for (const StageClass& each : one.classes) stages.insert(stages.end(), at(each.stages), &each);
  const std::function<double(std::size_t, std::int64_t)> least = [&](std::size_t stage, std::int64_t left) {
    if (stage == stages.size()) return left == 0 ? 0.0 : kNever;
    double best_s = kNever;
    for (std::int64_t held = one.least; held <= std::min(left, stages[stage]->most_layers); ++held)
      best_s = std::min(
          best_s, std::max(held > 0 ? stages[stage]->seconds(held) : 0.0, least(stage + 1, left - held)));
    return best_s;
  };
  return least(0, one.layers);
}

bool has_lines(const LayerCase& one) {
  return std::all_of(one.classes.begin(), one.classes.end(),
                     [](const StageClass& each) { return each.with_layers.empty(); });
}

}  // namespace

TEST_CASE("layers shared out leave the longest stage as short as any way to share them out", "[plan]") {
  int possible = 0, impossible = 0, on_lines = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    LayerCase one = random_layer_case(seed);
    const double least_s = least_by_exhaustion(one);
    const double shared_s = share_out(one.classes, one.layers, one.least);
    if (!std::isfinite(least_s)) {
      CHECK(!std::isfinite(shared_s));
      ++impossible;
      continue;
    }
    ++possible;
    REQUIRE(shared_s == Approx(least_s).epsilon(1e-12));
    std::int64_t sum = 0;
    double longest_s = 0, passed_on_s = 0;
    for (const StageClass& each : one.classes) {
      CHECK(each.layers >= one.least);
      CHECK(each.more < each.stages);
      const std::int64_t most = each.layers + (each.more > 0 ? 1 : 0);
      CHECK(most <= each.most_layers);
      sum += each.stages * each.layers + each.more;
      if (most > 0) longest_s = std::max(longest_s, each.seconds(most));
      passed_on_s +=
          static_cast<double>(each.stages * each.layers + each.more) * each.layer_s * each.passed_on_share;
    }
    CHECK(sum == one.layers);
    CHECK(longest_s == shared_s);
    CHECK(round_trip_s(one.classes) == Approx(passed_on_s));
    if (!has_lines(one) || one.least == 0) continue;
    CHECK(longest_of_parts_s(one.classes, one.layers) <= shared_s * (1 + 1e-12));
    ++on_lines;
  }
  CHECK(possible > 500);
  CHECK(impossible > 500);
  CHECK(on_lines > 200);
}

TEST_CASE("a stage that may hold more layers, or is faster, never leaves the longest one longer", "[plan]") {
  int shorter = 0;
  for (unsigned seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    const LayerCase one = random_layer_case(seed);
    std::vector<StageClass> before = one.classes, roomier = one.classes, faster = one.classes;
    const double before_s = share_out(before, one.layers, one.least);
    ++roomier[seed % roomier.size()].most_layers;
    StageClass& quick = faster[seed % faster.size()];
    quick.layer_s *= 0.8;
    for (double& each : quick.with_layers) each *= 0.8;
    CHECK(share_out(roomier, one.layers, one.least) <= before_s);
    CHECK(share_out(faster, one.layers, one.least) <= before_s);
    shorter += share_out(faster, one.layers, one.least) < before_s ? 1 : 0;
  }
  CHECK(shorter > 200);
}

TEST_CASE("what a stage in a V has in flight is what the evaluation of its timetable counts", "[plan]") {
  // What is put off counts as whole: so does the evaluation.
  PutOffShares whole;
  whole.each = 1;
  int ranks_seen = 0, put_off = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    Dice dice(seed);
    const Schedule schedule = dice.one_of({Schedule::zb_v, Schedule::dualpipe_v});
    const int ranks = dice.one_of({2, 3, 4, 6});
    PipelineShape shape{ranks, kChunksInV, dice.one_of({2 * ranks, 3 * ranks, 5 * ranks}), 0,
                        overlaps_steps(schedule)};
    ScheduleTimes times;
    for (int i = 0; i < kChunksInV * ranks; ++i)
      times.stages.push_back(
          {dice.one_of({0.8, 1.0, 1.3}), dice.one_of({0.7, 1.0, 1.5}), dice.one_of({0.4, 1.0})});
    const Timetable timetable = make_timetable(schedule, shape, times);
    const auto result = evaluate(timetable, times);
    REQUIRE(result.has_value());
    for (int rank = 0; rank < ranks; ++rank) {
      CAPTURE(seed, rank, to_csv(timetable));
      const InFlight peak = peak_in_flight(timetable.ranks[at(rank)], rank, {3, 3}, whole);
      // Two chunks of a micro-batch are a whole one of the stage.
      CHECK(2 * (peak.kept + peak.put_off) == Approx(result->ranks[at(rank)].in_flight));
      ++ranks_seen;
      // Larger shares of what is put off never need fewer bytes.
      PutOffShares more = whole;
      more.each = 1.7;
      more.once = 0.7;
      const InFlight higher = peak_in_flight(timetable.ranks[at(rank)], rank, {3, 3}, more);
      put_off += higher.put_off > 0 ? 1 : 0;
      CHECK(higher.kept + higher.beyond_kept(more) >= peak.kept + peak.beyond_kept(whole) - 1e-9);
    }
  }
  CHECK(ranks_seen > 150);
  CHECK(put_off > 30);
}
