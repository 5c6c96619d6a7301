// Speeds that vary: distributions and their order statistics, draws, and their text.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "models/cluster/variation_text.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

double any_share(Dice& dice) { return (static_cast<double>(dice.engine()() % 9999) + 0.5) / 9999; }

Spread any_spread(Dice& dice) {
  if (dice.once_in(2)) {
    const double mean = dice.one_of({1.0, 1.02});
    return Spread::normal(dice.one_of({0.001, 0.02, 0.1}), mean);
  }
  std::vector<Spread::Quantile> quantiles{{0, dice.one_of({0.5, 0.8})}};
  for (int i = 0; i < 4; ++i) {
    Spread::Quantile next = quantiles.back();
    if (!dice.once_in(3)) next.share = std::lerp(next.share, 1, any_share(dice));
    if (!dice.once_in(3)) next.speed += 0.1 * any_share(dice);
    quantiles.push_back(next);
  }
  quantiles.push_back({1, quantiles.back().speed + 0.1});
  return Spread::measured(std::move(quantiles));
}

}  // namespace

TEST_CASE("normal quantiles invert the normal distribution") {
  for (const double z : {-7.0, -3.5, -1.0, -1e-3, 0.0, 0.4, 2.0, 5.0})
    CHECK(normal_quantile(normal_share_below(z)) == Approx(z).margin(1e-9).epsilon(1e-9));
}

TEST_CASE("the expected largest of normal numbers is that of the tables") {
  // Harter, Biometrika 48 (1961), table 1.
  CHECK(expected_largest(1) == Approx(0).margin(1e-12));
  CHECK(expected_largest(2) == Approx(0.56419).epsilon(1e-5));
  CHECK(expected_largest(8) == Approx(1.42360).epsilon(1e-5));
  CHECK(expected_largest(100) == Approx(2.50759).epsilon(1e-5));
  CHECK(expected_largest(400) == Approx(2.96818).epsilon(1e-4));
  double before = 0;
  for (double count = 2; count < 1e7; count *= 1.7) {
    CHECK(expected_largest(count) > before);
    before = expected_largest(count);
  }
}

TEST_CASE("speeds and shares of a spread invert each other, and neither falls") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const Spread spread = any_spread(dice);
    double low = any_share(dice), high = any_share(dice);
    if (low > high) std::swap(low, high);
    CHECK(spread.speed_at(low) <= spread.speed_at(high));
    CHECK(spread.share_below(spread.speed_at(low)) <= spread.share_below(spread.speed_at(high)) + 1e-12);
    const double speed = spread.speed_at(low);
    CHECK(spread.share_below(speed * (1 - 1e-9)) <= low + 1e-6);
    CHECK(spread.share_below(speed * (1 + 1e-9)) >= low - 1e-6);
  }
}

TEST_CASE("a draw has the deviation of its variation, and equal seeds give equal draws") {
  Cluster cluster = tiny_cluster(4000);
  cluster.variation.emplace();
  cluster.variation->chips = Spread::normal(0.02);
  cluster.variation->nics = Spread::normal(0.1);
  cluster.variation->seed = 7;
  const Cluster drawn = draw_speeds(cluster, 3);
  REQUIRE(drawn.chip_speed.size() == at(cluster.chip_count()));
  double sum = 0, squares = 0;
  for (const double speed : drawn.chip_speed) {
    sum += speed;
    squares += speed * speed;
  }
  const double count = static_cast<double>(drawn.chip_speed.size()), mean = sum / count;
  CHECK(mean == Approx(1).margin(0.002));
  CHECK(std::sqrt(squares / count - mean * mean) == Approx(0.02).epsilon(0.1));
  CHECK(!drawn.variation);
  CHECK(draw_speeds(cluster, 3) == drawn);
  CHECK(!(draw_speeds(cluster, 4) == drawn));
  cluster.variation->seed = 8;
  CHECK(!(draw_speeds(cluster, 3) == drawn));
}

TEST_CASE("clusters with slow parts and variation read back as they were written") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Cluster cluster = tiny_cluster(2);
    cluster.groups[0].nodes = 2;
    if (dice.once_in(2)) cluster.slow.push_back(Slow{.node = 1, .factor = 0.9});
    if (dice.once_in(2)) cluster.slow.push_back(Slow{.node = 0, .factor = 0.7, .nics = 0.25});
    if (dice.once_in(2)) cluster.slow.push_back(Slow{.chip = 2, .factor = 1.5});
    if (!dice.once_in(3)) {
      cluster.variation.emplace();
      if (dice.once_in(2)) cluster.variation->chips = any_spread(dice);
      if (dice.once_in(2)) cluster.variation->nodes = any_spread(dice);
      if (dice.once_in(2)) cluster.variation->nics = any_spread(dice);
      cluster.variation->seed = dice.one_of({0, 5});
      if (dice.once_in(2)) cluster.variation->source = "measured \"here\", 2026-11";
    }
    build_topology(cluster);
    const Cluster again = parse_cluster(print(cluster));
    CHECK(again == cluster);
    CHECK(again.chip_speed == cluster.chip_speed);
    CHECK(print(again) == print(cluster));
  }
}

TEST_CASE("a part that is slow and that a cluster does not have is refused") {
  Cluster cluster = load_cluster("host-2");
  cluster.slow.push_back(Slow{.node = 7, .factor = 0.5});
  CHECK(tests::refusal_on_page([&] { build_topology(cluster); }) ==
        tests::expected_refusal("out-of-bounds: a slow node past the last"));
}

TEST_CASE("a measured spread has the speeds of its quantiles, with straight lines between them") {
  const Spread spread = Spread::measured({{0, 0.5}, {0.5, 0.9}, {0.5, 1}, {1, 1.2}});
  CHECK(spread.varies());
  CHECK(spread.quantiles().size() == 4);
  CHECK(spread.speed_at(0) == 0.5);
  CHECK(spread.speed_at(0.25) == Approx(0.7));
  CHECK(spread.speed_at(0.75) == Approx(1.1));
  CHECK(spread.speed_at(1) == 1.2);
  CHECK(spread.share_below(0.7) == Approx(0.25));
  CHECK(spread.share_below(0.95) == Approx(0.5));
  CHECK(spread != Spread{});
}
