// Loads of the busiest experts, and the skew that predicts a load that was measured.
#include <array>
#include <catch2/catch.hpp>

#include "models/program/expert_load.hpp"

using namespace motley;

namespace {

Experts routed(std::int64_t count, std::int64_t per_token) {
  Experts e;
  e.count = count;
  e.per_token = per_token;
  return e;
}

std::vector<DividedLayer> divided_layers(int count, std::int64_t parts) {
  std::vector<DividedLayer> all;
  for (int layer = 0; layer < count; ++layer) all.push_back({layer, parts});
  return all;
}

struct Division {
  std::int64_t experts = 1, per_token = 1, parts = 1;
};

}  // namespace

TEST_CASE("the load of the busiest is its part of the copies over the even part") {
  const std::array<std::int64_t, 4> copies = {30, 10, 50, 10};
  CHECK(load_of_busiest(copies, 1) == 1);
  CHECK(load_of_busiest(copies, 2) == Approx(1.2));
  CHECK(load_of_busiest(copies, 4) == Approx(2.0));
  CHECK(load_of_busiest(std::array<std::int64_t, 2>{7, 7}, 2) == 1);
  CHECK(load_of_busiest(std::array<std::int64_t, 2>{0, 0}, 2) == 1);
}

TEST_CASE("an expected load is even without skew, never less, and never more than there are ranks") {
  const Division d = GENERATE(Division{4, 2, 2}, Division{8, 2, 8}, Division{16, 1, 4}, Division{64, 6, 8});
  for (const double skew : {0.0, 0.1, 0.5, 1.0, 4.0, 20.0}) {
    const double load = expected_load(routed(d.experts, d.per_token), divided_layers(5, d.parts), skew, 3);
    CHECK(load >= 1 - 1e-12);
    CHECK(load <= static_cast<double>(d.parts) + 1e-12);
    CHECK((skew > 0 || load == Approx(1).epsilon(1e-12)));
  }
}

TEST_CASE(
    "where every rank has one expert, the load rises with the skew until every token takes the busiest") {
  const Experts e = routed(8, 2);
  double before = 1;
  for (double skew = 0.1; skew < 20; skew += 0.1) {
    const double load = expected_load(e, divided_layers(3, 8), skew, 1);
    CHECK(load >= before - 1e-12);
    before = load;
  }
  CHECK(before == Approx(4));  // 8 experts, of which a token takes 2
}

TEST_CASE("a skew found from the load that it predicts is the skew") {
  const Division d = GENERATE(Division{4, 2, 2}, Division{8, 2, 2}, Division{8, 1, 4}, Division{64, 6, 8},
                              Division{256, 8, 16});
  const Experts e = routed(d.experts, d.per_token);
  for (const std::uint64_t seed : {1, 2, 7})
    for (const double skew : {1e-5, 0.003, 0.11, 0.37, 0.59}) {
      const double load = expected_load(e, divided_layers(4, d.parts), skew, seed);
      const SkewOfLoad fitted = skew_of_load(e, divided_layers(4, d.parts), seed, load);
      CAPTURE(d.experts, d.parts, seed, skew);
      CHECK(fitted.reached);
      CHECK(fitted.load == Approx(load).epsilon(1e-12));
      CHECK(fitted.skew == Approx(skew).margin(1e-6));
    }
}

TEST_CASE("an even load needs no skew, and a load that no skew reaches gets the skew of the largest load") {
  const Experts e = routed(4, 2);
  for (const double load : {0.5, 1.0}) {
    const SkewOfLoad even = skew_of_load(e, divided_layers(4, 2), 1, load);
    CHECK(even.skew == 0);
    CHECK(even.load == Approx(1).epsilon(1e-12));
    CHECK(even.reached);
  }
  const SkewOfLoad most = skew_of_load(e, divided_layers(4, 2), 1, 1.9);
  CHECK_FALSE(most.reached);
  CHECK(most.load < 1.9);
  CHECK(expected_load(e, divided_layers(4, 2), most.skew, 1) == Approx(most.load).epsilon(1e-6));
  for (double skew = 0; skew < 32; skew += 0.05)
    CHECK(expected_load(e, divided_layers(4, 2), skew, 1) <= most.load + 1e-6);
}

TEST_CASE("the same load is found again where larger skews give less of it") {
  // The order that seed 1 draws puts the two busiest of four experts on different ranks in most layers.
  const Experts e = routed(4, 2);
  const double rising = expected_load(e, divided_layers(4, 2), 0.9, 1),
               falling = expected_load(e, divided_layers(4, 2), 5, 1);
  CHECK(rising < expected_load(e, divided_layers(4, 2), 1.5, 1));
  CHECK(falling < expected_load(e, divided_layers(4, 2), 1.5, 1));
  const SkewOfLoad fitted = skew_of_load(e, divided_layers(4, 2), 1, falling);
  CHECK(fitted.reached);
  CHECK(fitted.skew < 1.5);
  CHECK(expected_load(e, divided_layers(4, 2), fitted.skew, 1) == Approx(falling).epsilon(1e-9));
}

TEST_CASE("layers with unlike divisions count alike, and no layers are even") {
  const Experts e = routed(8, 2);
  const double mixed = expected_load(e, {{0, 8}, {1, 1}}, 0.5, 1);
  CHECK(mixed == Approx((expected_load(e, {{0, 8}}, 0.5, 1) + 1) / 2));
  CHECK(expected_load(e, {}, 0.5, 1) == 1);
  CHECK(skew_of_load(e, {}, 1, 2).reached == false);
}
