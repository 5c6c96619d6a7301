// Fits of links: known figures come back, whatever else is among the transfers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <tuple>

#include "models/calibration/link_fit.hpp"
#include "models/calibration/relative_fit.hpp"

using namespace motley;

namespace {

struct Figures {
  double latency_s, bytes_per_s;
};

// Messages and collectives of all sizes; `noise`: the deviation of their relative errors, of which one in twenty is
// threefold.
std::vector<LinkSample> transfers_over(const Figures& link, double noise, std::mt19937_64& random) {
  std::uniform_real_distribution<double> size(2, 7.5), chance(0, 1);
  std::normal_distribution<double> error;
  std::vector<LinkSample> transfers;
  for (int i = 0; i < 200; ++i) {
    LinkSample sample{.kind = i % 2 == 0 ? "recv" : "all_reduce"};
    sample.latencies = i % 2 == 0 ? 1 : 2;
    sample.bytes = std::pow(10, size(random));
    sample.seconds = sample.latencies * link.latency_s + sample.bytes / link.bytes_per_s;
    sample.seconds *= noise > 0 && chance(random) < 0.05 ? 3 : std::exp(noise * error(random));
    sample.beside_compute = i % 3 == 0;
    transfers.push_back(sample);
  }
  return transfers;
}

}  // namespace

TEST_CASE("a link's known latency and bandwidth come back", "[calibration]") {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> power(0, 3);
  for (int i = 0; i < 50; ++i) {
    const double latency_s = 1e-6 * std::pow(10, power(random));
    const double half = 1e4 * std::pow(10, power(random) / 2);  // bytes that take as long as the latency
    const Figures link{latency_s, half / latency_s};
    const auto exact = fit_link(transfers_over(link, 0, random));
    REQUIRE(exact.has_value());
    CHECK(exact->latency_s == Approx(link.latency_s).epsilon(0.01));
    CHECK(exact->bytes_per_s == Approx(link.bytes_per_s).epsilon(0.01));
    CHECK(exact->worst_error < 0.01);
    CHECK(exact->held_out_mean.value() < 0.01);
    const auto noisy = fit_link(transfers_over(link, 0.1, random));
    REQUIRE(noisy.has_value());
    CHECK(noisy->latency_s == Approx(link.latency_s).epsilon(0.05));
    CHECK(noisy->bytes_per_s == Approx(link.bytes_per_s).epsilon(0.05));
  }
}

TEST_CASE("errors of a link are told by kind, and for idle ranks apart from those that compute",
          "[calibration]") {
  std::mt19937_64 random(11);
  std::vector<LinkSample> transfers = transfers_over({2e-5, 2e9}, 0, random);
  for (LinkSample& each : transfers)
    if (each.beside_compute) each.seconds *= 1.1;
  const auto fit = fit_link(transfers);
  REQUIRE(fit.has_value());
  REQUIRE(fit->by_kind.size() == 4);
  const auto& [all_reduce, recv, idle, beside] =
      std::tie(fit->by_kind[0], fit->by_kind[1], fit->by_kind[2], fit->by_kind[3]);
  CHECK(all_reduce.kind == "all_reduce");
  CHECK(recv.kind == "recv");
  CHECK(all_reduce.transfers + recv.transfers == fit->transfers);
  CHECK(idle.transfers + beside.transfers == fit->transfers);
  CHECK(idle.bias - beside.bias == Approx(1 - 1 / 1.1).epsilon(0.05));
}

TEST_CASE("a link's figures come from its messages, also if a burst passes at once", "[calibration]") {
  std::mt19937_64 random(13);
  std::uniform_real_distribution<double> power(0, 2);
  for (int i = 0; i < 100; ++i) {
    const double latency_s = 1e-6 * std::pow(10, power(random)), rate = 1e7 * std::pow(10, power(random));
    const double burst = i % 2 == 0 ? 0 : 2e-3 * rate;
    std::vector<TransferSample> transfers;
    for (double bytes = 16; bytes < 1e8; bytes *= 4)
      for (const bool beside : {false, true}) {
        const double seconds = latency_s + std::max(0.0, bytes - burst) / rate;
        for (const double factor : {1.0, 0.99, 1.01, 7.0, 1.0})
          transfers.push_back({.kind = TransferKind::send_latency,
                               .bytes = bytes,
                               .seconds = (beside ? 3 : 1) * factor * seconds,
                               .beside_compute = beside});
      }
    const auto link = link_between(transfers);
    REQUIRE(link.has_value());
    if (burst > 100) CHECK(link->latency_s == Approx(latency_s).epsilon(0.05));
    CHECK(link->bytes_per_s == Approx(rate).epsilon(0.02));
  }
  CHECK_FALSE(link_between({}).has_value());
}

TEST_CASE("transfers of one size tell no latency from a bandwidth", "[calibration]") {
  CHECK_FALSE(fit_link({}).has_value());
  const LinkSample one{.kind = "recv", .latencies = 1, .bytes = 1e6, .seconds = 1e-3};
  CHECK_FALSE(fit_link(std::vector<LinkSample>(9, one)).has_value());
}

TEST_CASE("parts that no point needs are left out of a fit", "[calibration]") {
  std::vector<RelativePoint> points;
  for (int i = 1; i <= 9; ++i)
    points.push_back(relative_point({1, 10.0 * i, 7.0 * i * i}, 3e-6 + 2e-9 * 7 * i * i));
  const Parts parts = best_parts(points, part_bit(0) | part_bit(1) | part_bit(2), part_bit(1));
  CHECK(has_part(parts, 0));
  CHECK(has_part(parts, 2));
  const auto seconds = fit_parts(points, part_bit(0) | part_bit(2));
  REQUIRE(seconds.has_value());
  CHECK((*seconds)[0] == Approx(3e-6).epsilon(1e-6));
  CHECK((*seconds)[1] == 0);
  CHECK((*seconds)[2] == Approx(2e-9).epsilon(1e-6));
  CHECK(held_out_error(points, part_bit(0) | part_bit(2)).worst < 1e-6);
}
