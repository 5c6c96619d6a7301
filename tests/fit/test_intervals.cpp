// How wide intervals are that should hold runs of groups from which they were not made.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "tests/support/fit_world.hpp"
#include "tools/fit/intervals.hpp"
#include "tools/fit/results.hpp"

using namespace motley;
using namespace motley::fit;

namespace {

// Runs of `groups` groups. `apart`, `inside`: standard deviations of the logarithm between groups and inside a group.
std::vector<Ratio> scattered(int groups, int of_each, double apart, double inside, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 1);
  std::vector<Ratio> ratios;
  for (int g = 0; g < groups; ++g) {
    const double centre = apart * normal(random);
    for (int i = 0; i < of_each; ++i)
      ratios.push_back({std::exp(centre + inside * normal(random)), "set " + std::to_string(g),
                        "group " + std::to_string(g)});
  }
  return ratios;
}

double share_inside(const std::vector<Ratio>& ratios, const Bounds& bounds) {
  double inside = 0;
  for (const Ratio& each : ratios) inside += bounds.low <= each.value && each.value <= bounds.high ? 1 : 0;
  return inside / static_cast<double>(ratios.size());
}

}  // namespace

TEST_CASE("bounds hold what their tails leave, of rows and of sets") {
  std::vector<Ratio> ratios;
  for (int i = 1; i <= 100; ++i) ratios.push_back({static_cast<double>(i), "one", "one"});
  CHECK(bounds_of(ratios, 0.1).low == 10);
  CHECK(bounds_of(ratios, 0.1).high == 90);
  // Another set has two rows only, but it is one of two sets.
  ratios.push_back({0.5, "two", "two"});
  ratios.push_back({200, "two", "two"});
  CHECK(bounds_of(ratios, 0.1).low == 0.5);
  CHECK(bounds_of(ratios, 0.1).high == 200);
}

TEST_CASE("intervals are as wide as other groups need") {
  const std::vector<Ratio> ratios = scattered(12, 15, 0.1, 0.02, 7);
  const HeldBounds interval = interval_of(ratios);
  const Bounds narrow = bounds_of(ratios, 0.1);
  CHECK(interval.bounds.low <= narrow.low);
  CHECK(interval.bounds.high >= narrow.high);
  CHECK(interval.held >= 0.8);
  CHECK(share_inside(ratios, interval.bounds) >= interval.held);  // runs of its own group helped to make it
  // `held` counts the runs of each group that lie inside bounds made from the other groups.
  const HeldBounds far = interval_of(scattered(5, 15, 0.5, 0.001, 7));
  CHECK(far.held < 0.8);
}

TEST_CASE("runs that lie twice as far apart get bounds twice as far, and the order of runs is of no matter") {
  std::vector<Ratio> ratios = scattered(12, 15, 0.1, 0.02, 7);
  const HeldBounds interval = interval_of(ratios);
  std::vector<Ratio> wider = ratios;
  for (Ratio& each : wider) each.value *= each.value;
  CHECK(std::log(interval_of(wider).bounds.high) == Approx(2 * std::log(interval.bounds.high)));
  std::shuffle(ratios.begin(), ratios.end(), std::mt19937(3));
  const HeldBounds same = interval_of(ratios);
  CHECK(same.bounds.low == interval.bounds.low);
  CHECK(same.bounds.high == interval.bounds.high);
  CHECK(same.held == interval.held);
}

TEST_CASE("few runs of some software get the interval of any, and no narrower than their own") {
  const std::vector<Ratio> all = scattered(12, 15, 0.05, 0.02, 7);
  std::vector<Ratio> few(all.begin(), all.begin() + 5);
  const HeldBounds of_any = interval_of(all);
  const Written plain = interval_of_software(few, all, "2026-11");
  CHECK(plain.bounds.low == of_any.bounds.low);
  CHECK(plain.source.starts_with(
      "180 runs of any software, each predicted without those of its own; made of the "
      "other sizes it held "));
  few[0].value = 3;
  const Written wide = interval_of_software(few, all, "2026-11");
  CHECK(wide.bounds.high == 3);
  CHECK(wide.source.starts_with("5 runs of it and 180 runs of any software, "));
  const Written own = interval_of_software(all, all, "2026-11");
  CHECK(own.source.starts_with("180 runs of it, "));
  CHECK(own.source.ends_with(" %, 2026-11"));
}

TEST_CASE("errors are told by set, in percent of what was measured") {
  const ErrorTable table = table_of({std::log(1.1), std::log(0.8), std::log(1.3), 0}, {"b", "b", "b", "a"});
  REQUIRE(table.sets.size() == 2);
  CHECK(table.sets[0].set == "a");
  CHECK(table.sets[1].rows == 3);
  CHECK(table.sets[1].mean_pct == Approx(20));
  CHECK(table.sets[1].median_pct == Approx(20));
  CHECK(table.sets[1].worst_pct == Approx(30));
  CHECK(table.mean_of_sets_pct == Approx(10));
  CHECK(to_text(table) ==
        "  a           1 rows  mean   0.0  median   0.0  worst   0.0 %\n"
        "  b           3 rows  mean  20.0  median  20.0  worst  30.0 %\n"
        "  mean of sets 10.0 %, median 10.0 %\n");
}
