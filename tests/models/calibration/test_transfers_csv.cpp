// The table of transfers: it reads back as it was, and what is wrong in it is told.
#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "models/base/refusal.hpp"
#include "models/calibration/transfer_fit.hpp"
#include "models/calibration/transfers_csv.hpp"

using namespace motley;

namespace {

std::vector<TransferSample> drawn_transfers(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TransferSample> samples(random() % 20 + 1);
  for (TransferSample& each : samples)
    each = {.kind = static_cast<TransferKind>(random() % kWords<TransferKind>.size()),
            .ranks = static_cast<int>(2 + random() % 1000),
            .bytes = static_cast<double>(random()),
            .seconds = 1e-9 * (1 + static_cast<double>(random() % 100'000'000)),
            .beside_compute = random() % 2 == 0};
  return samples;
}

std::string refusal_of(const std::string& row) {
  try {
    read_transfers_csv("transfer,ranks,beside_compute,bytes,seconds\n" + row + "\n", "t.csv");
  } catch (const Refusal& refusal) {
    return refusal.kind() + " " + std::to_string(refusal.where().line) + ":" +
           std::to_string(refusal.where().column);
  }
  return "";
}

}  // namespace

TEST_CASE("a table of transfers reads back as it was", "[calibration]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::vector<TransferSample> samples = drawn_transfers(seed);
    const std::string text = print_transfers(samples);
    REQUIRE(is_transfers_csv(text));
    const std::vector<TransferSample> again = read_transfers_csv(text, "t.csv");
    REQUIRE(again.size() == samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      CHECK(again[i].kind == samples[i].kind);
      CHECK(again[i].ranks == samples[i].ranks);
      CHECK(again[i].bytes == samples[i].bytes);
      CHECK(again[i].seconds == Approx(samples[i].seconds).epsilon(1e-8));
      CHECK(again[i].beside_compute == samples[i].beside_compute);
    }
    CHECK(print_transfers(again) == text);
  }
}

TEST_CASE("what is wrong in a table of transfers is told at its cell", "[calibration]") {
  CHECK(refusal_of("all_reduce,2,no,64,1e-5").empty());
  CHECK(refusal_of("all_reduse,2,no,64,1e-5") == "bad-csv 2:1");
  CHECK(refusal_of("all_reduce,1,no,64,1e-5") == "bad-csv 2:12");
  CHECK(refusal_of("all_reduce,2,maybe,64,1e-5") == "bad-csv 2:14");
  CHECK(refusal_of("all_reduce,2,no,-1,1e-5") == "bad-csv 2:17");
  CHECK(refusal_of("all_reduce,2,no,64,0") == "bad-csv 2:20");
}

TEST_CASE("idle ranks and those that compute are fitted apart", "[calibration]") {
  std::vector<TransferSample> samples;
  for (double bytes = 64; bytes < 1e8; bytes *= 4)
    for (const bool beside : {false, true})
      samples.push_back({.kind = TransferKind::all_reduce,
                         .ranks = 2,
                         .bytes = bytes,
                         .seconds = (beside ? 3 : 1) * (2e-5 + bytes / 1e9),
                         .beside_compute = beside});
  const std::vector<TransferFit> fits = fit_transfers(samples);
  REQUIRE(fits.size() == 2);
  CHECK_FALSE(fits[0].beside_compute);
  CHECK(fits[1].beside_compute);
  for (const double bytes : {64.0, 1e5, 1e7})
    CHECK(fits[1].seconds(bytes) == Approx(3 * fits[0].seconds(bytes)).epsilon(1e-6));
}
