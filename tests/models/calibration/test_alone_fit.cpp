// What kernels take alone, compared with what they take among busy ranks.
#include <catch2/catch.hpp>
#include <random>

#include "models/calibration/alone_fit.hpp"
#include "models/calibration/kernel_fit.hpp"
#include "models/calibration/samples_csv.hpp"
#include "models/cluster/chip.hpp"

using namespace motley;

namespace {

// Shapes of one kind, each of which takes `share` of its usual time.
void add_kind(KernelOp op, std::int64_t shapes, double share, std::mt19937_64& random, Samples& samples) {
  std::uniform_real_distribution<double> seconds(1e-5, 1e-3);
  for (std::int64_t size = 1; size <= shapes; ++size) {
    KernelSample sample;
    sample.kernel = {op};
    sample.shape = {size, 0, 0, 0, 0, 1e5 * static_cast<double>(size), 0};
    sample.times = {share * seconds(random)};
    samples.kernels.push_back(sample);
  }
}

Samples all_kinds(double matmul, double embed, double gate) {
  std::mt19937_64 random(5);
  Samples added, all;
  add_kind(KernelOp::matmul, 8, matmul, random, added);
  add_kind(KernelOp::embed, 3, embed, random, added);
  add_kind(KernelOp::gate, 2, gate, random, added);
  add_samples(added, all);
  return all;
}

}  // namespace

TEST_CASE("the shares of kernels alone come back from samples made with them", "[calibration]") {
  const Samples among = all_kinds(1, 1, 1);
  KernelRates rates = fit_kernels(among).rates;
  const AloneFit fit = fit_alone(among, all_kinds(0.9, 0.25, 0.5), 16, rates);
  CHECK(fit.shapes == 13);
  CHECK(rates.busy == 16);
  CHECK(rates.alone == fit.share);
  CHECK(rates.rates.at({KernelOp::matmul}).alone == Approx(0.9).epsilon(1e-3));
  CHECK(rates.rates.at({KernelOp::embed}).alone == Approx(0.25).epsilon(1e-3));
  CHECK(rates.rates.at({KernelOp::gate}).alone == 0);  // too few shapes: as all together
  CHECK(fit.share > 0.25);
  CHECK(fit.share < 0.9);
  Chip chip = load_chip("host-core");
  rates.source = "made up";
  chip.software.kernels = rates;
  CHECK(read_chip(parse_yaml(print(chip, ""), "chip.yaml"), "") == chip);
}

TEST_CASE("nothing is faster among others than alone", "[calibration]") {
  const Samples among = all_kinds(1, 1, 1);
  KernelRates rates = fit_kernels(among).rates;
  CHECK(fit_alone(among, all_kinds(1.2, 1.1, 1.3), 2, rates).share == 1);
  CHECK(rates.rates.at({KernelOp::matmul}).alone == 1);
}

TEST_CASE("what was measured one way alone tells nothing", "[calibration]") {
  const Samples among = all_kinds(1, 1, 1);
  const KernelRates fitted = fit_kernels(among).rates;
  for (const std::int64_t ranks : {1, 2}) {
    KernelRates rates = fitted, expected = fitted;
    expected.busy = ranks;
    CHECK(fit_alone(among, ranks == 1 ? among : Samples(), ranks, rates).shapes == 0);
    CHECK(rates == expected);
  }
}

TEST_CASE("probes of a rank alone stand apart in a table", "[calibration]") {
  const SamplesOrigin origin{"a machine", "fast kernels", 4};
  const Samples among = all_kinds(1, 1, 1), alone = all_kinds(0.5, 0.5, 0.5);
  const std::string text = samples_csv_head() + samples_csv_rows(origin, "0000 a", among) +
                           samples_csv_rows(origin, "0000 a" + std::string(kAlone), alone);
  const SamplesTable table = parse_samples_csv(text, "samples.csv");
  CHECK(table.probes.size() == 2);
  CHECK(table.samples.kernels.size() == among.kernels.size());
  REQUIRE(table.alone.kernels.size() == alone.kernels.size());
  for (std::size_t i = 0; i < alone.kernels.size(); ++i)
    CHECK(table.alone.kernels[i].shape.seconds == Approx(alone.kernels[i].shape.seconds));
}
