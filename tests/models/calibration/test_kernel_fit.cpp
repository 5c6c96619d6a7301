// What a fit of kernels says of its own errors. tests/sim/test_calibration.cpp has the fit of the speeds.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "models/calibration/kernel_fit.hpp"
#include "models/cluster/chip.hpp"

using namespace motley;

namespace {

// Samples of a job in which each shape takes its usual time, times a factor of the job's own; each execution differs.
Samples job_samples(double between_jobs, double between_times, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  Samples samples;
  for (std::int64_t shape = 1; shape <= 20; ++shape) {
    KernelSample sample;
    sample.kernel = {KernelOp::matmul};
    const double bytes = 1e5 * static_cast<double>(shape);
    sample.shape = {shape, 64, 64, 0, 8192.0 * static_cast<double>(shape), bytes, 0};
    const double factor = std::exp(between_jobs * normal(random));
    for (int i = 0; i < 9; ++i)
      sample.times.push_back(1e-4 * static_cast<double>(shape) * factor *
                             std::exp(between_times * normal(random)));
    samples.kernels.push_back(sample);
  }
  return samples;
}

double apart(double between_jobs, double between_times, int jobs, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Samples all;
  for (int job = 0; job < jobs; ++job) add_samples(job_samples(between_jobs, between_times, random), all);
  return fit_kernels(all).rates.between_jobs;
}

}  // namespace

TEST_CASE("how far jobs are apart is told from shapes that several of them have", "[calibration]") {
  constexpr double kMeanOfNormal = 0.798;  // of the absolute values, in deviations
  for (const int jobs : {2, 3, 10, 40})
    for (const double between : {0.02, 0.1}) {
      INFO(jobs << " jobs, " << between);
      double mean = 0;
      for (std::uint64_t seed = 0; seed < 20; ++seed) mean += apart(between, 0, jobs, seed) / 20;
      CHECK(mean == Approx(kMeanOfNormal * between).epsilon(0.15));
    }
  CHECK(apart(0, 0, 8, 1) < 1e-12);
  CHECK(apart(0.1, 0, 1, 1) == 0);           // one job alone does not tell
  CHECK(apart(0.1, 0.01, 1, 1) == 0);        // nor do its steps
  CHECK(apart(0, 0.03, 8, 1) < 0.5 * 0.03);  // the median of a job's steps moves less than they do
}

TEST_CASE("the figures of a calibrated chip read back as they were printed", "[calibration]") {
  std::mt19937_64 random(3);
  Samples all;
  for (int job = 0; job < 3; ++job) add_samples(job_samples(0.1, 0.01, random), all);
  Chip chip = load_chip("host-core");
  chip.software.kernels = fit_kernels(all).rates;
  chip.software.kernels.source = "made up";
  REQUIRE(chip.software.kernels.between_jobs > 0);
  CHECK(read_chip(parse_yaml(print(chip, ""), "chip.yaml"), "") == chip);
}
