// Calibration against the simulator: samples of a chip whose kernels have known speeds give these speeds back.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>

#include "models/base/refusal.hpp"
#include "models/calibration/kernel_fit.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/rated_kernels.hpp"
#include "sim/workers/child.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// Speeds that differ from kind to kind; those of products and attention have all three parts.
KernelRates known_rates() {
  KernelRates rates;
  rates.source = "made up";
  for (const RatedKernel& kernel : rated_kernels()) {
    const double i = static_cast<double>(kernel.op) + 50 * static_cast<double>(kernel.variant);
    const std::string name = name_of(kernel);
    const bool attends = name.starts_with("attention");
    const bool works = name.find("matmul") != std::string::npos || attends;
    rates.rates[kernel] = {.overhead_s = works ? 1e-6 * (1 + i / 10) : 0,
                           .flops_per_s = works ? 1e9 * (50 + i) : 0,
                           .bytes_per_s = 1e9 * (2 + i / 7),
                           .pairs_per_s = attends ? 4e8 : 0};
  }
  rates.optimizer = KernelRate{.overhead_s = 0, .flops_per_s = 0, .bytes_per_s = 5e9};
  return rates;
}

struct MeasuredRun {
  Program program;
  Trace trace;
};

// Runs of unlike shapes on a chip of known speeds, as if they had been measured.
std::vector<MeasuredRun> measured_runs(const KernelRates& rates) {
  std::vector<MeasuredRun> runs;
  for (const std::string variant : {"gpt2", "llama", "mixtral"})
    for (const auto& [hidden, sequence, micro_batch] :
         {std::array<std::int64_t, 3>{64, 32, 1}, {128, 48, 2}, {192, 96, 1}, {256, 64, 4}, {320, 128, 2}}) {
      Transformer transformer = variant == "mixtral"
                                    ? tiny_variant("mixtral")
                                    : tiny_transformer(variant == "llama" ? Family::llama : Family::gpt2);
      const std::int64_t head_dim = hidden / transformer.heads;
      transformer.hidden = hidden;
      transformer.head_dim = head_dim;
      transformer.ffn = 3 * hidden;
      transformer.max_positions = std::max(transformer.max_positions, sequence);
      Job job = tiny_job({1, 1, 1}, transformer);
      job.train.sequence = sequence;
      job.train.micro_batch = micro_batch;
      job.train.global_batch = 8 * micro_batch;
      for (NodeGroup& group : job.cluster.groups) group.chip.software.kernels = rates;
      MeasuredRun run{compile(job), {}};
      SimOptions options;
      options.records_kernels = true;
      run.trace = simulate_in_child(job, run.program, options);
      run.trace.measured_ranks = {Rank(0)};
      runs.push_back(std::move(run));
    }
  return runs;
}

Samples samples_of_all(const std::vector<MeasuredRun>& runs) {
  Samples all;
  for (const MeasuredRun& run : runs) add_samples(samples_of(run.program, run.trace), all);
  return all;
}

double share_apart(double a, double b) { return a == b ? 0 : std::abs(a / b - 1); }

// Requires that every sample is predicted so well, and that of the kinds with many shapes each known part comes back.
void check_returned(const KernelFit& fit, const KernelRates& known, const Samples& samples, double tolerance,
                    int least_returned) {
  int returned = 0;
  for (const KernelSample& sample : samples.kernels) {
    const KernelRate& truth = known.rates.at(sample.kernel);
    INFO(name_of(sample.kernel));
    const KernelWork work = work_of(sample.kernel.op, sample.shape.flops, sample.shape.bytes, sample.shape.k);
    CHECK(share_apart(fit.rates.rates.at(sample.kernel).seconds(work), truth.seconds(work)) < tolerance);
  }
  for (const OpFit& each : fit.ops) {
    const KernelRate& truth = known.rates.at(each.kernel);
    INFO(name_of(each.kernel));
    if (truth.overhead_s > 0 || each.shapes < 3)
      continue;  // its parts are not told apart by every set of shapes
    CHECK(each.rate.overhead_s * 1e9 <= 1000 * tolerance);
    CHECK(share_apart(each.rate.bytes_per_s, truth.bytes_per_s) < tolerance);
    ++returned;
  }
  CHECK(returned >= least_returned);
  REQUIRE(fit.rates.optimizer.has_value());
  CHECK(share_apart(fit.rates.optimizer->bytes_per_s, known.optimizer->bytes_per_s) < tolerance);
}

// Each kernel takes a tenth more or less (one standard deviation); one in twenty is disturbed, and takes up to ten
// times as long.
void disturb(Trace& trace, std::mt19937& random) {
  const auto uniform = [&] { return static_cast<double>(random() % 1'000'000 + 1) / 1'000'001; };
  for (KernelEvent& event : trace.kernels) {
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * M_PI * uniform());
    double factor = std::max(0.5, 1 + 0.1 * normal);
    if (random() % 20 == 0) factor *= 2 + 8 * uniform();
    event.end_s = event.begin_s + factor * (event.end_s - event.begin_s);
  }
}

}  // namespace

TEST_CASE("calibrating on samples with known constants returns them to 1 %", "[calibration]") {
  const KernelRates known = known_rates();
  const Samples samples = samples_of_all(measured_runs(known));
  const KernelFit fit = fit_kernels(samples);
  check_returned(fit, known, samples, 0.01, 8);
  for (const OpFit& each : fit.ops) {
    INFO(name_of(each.kernel));
    CHECK(each.worst_error < 0.01);
    if (each.shapes >= 5) CHECK(each.held_out_worst.value() < 0.01);
  }
}

TEST_CASE("with 10 % of noise and 5 % of outliers they come back to 5 %", "[calibration]") {
  const KernelRates known = known_rates();
  const std::vector<MeasuredRun> runs = measured_runs(known);
  std::mt19937 random(7);
  Samples samples;
  for (int repeat = 0; repeat < 15; ++repeat)
    for (const MeasuredRun& run : runs) {
      Trace trace = run.trace;
      disturb(trace, random);
      add_samples(samples_of(run.program, trace), samples);
    }
  check_returned(fit_kernels(samples), known, samples, 0.05, 6);
}

TEST_CASE("a chip that was calibrated on some shapes predicts the steps of others", "[calibration]") {
  const KernelRates known = known_rates();
  std::vector<MeasuredRun> runs = measured_runs(known);
  std::vector<MeasuredRun> unseen;
  for (std::size_t i = 3; i < runs.size(); i += 5) unseen.push_back(runs[i]);  // of 256 wide models
  std::vector<MeasuredRun> seen;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (i % 5 != 3) seen.push_back(runs[i]);
  const KernelRates fitted = fit_kernels(samples_of_all(seen)).rates;
  for (const MeasuredRun& run : unseen) {
    double predicted_s = 0, measured_s = 0;
    for (const KernelEvent& event : run.trace.kernels) {
      const Kernel& kernel = *find_kernel(run.program, event.step, event.kernel);
      if (is_collective(kernel.op)) continue;
      measured_s += event.end_s - event.begin_s;
      const RatedKernel rated = rated_kernel(run.program.program_of(event.step.rank), kernel);
      predicted_s += fitted.rates.at(rated).seconds(
          work_of(kernel.op, kernel.flops, static_cast<double>(kernel.bytes), kernel.k));
    }
    CHECK(share_apart(predicted_s, measured_s) < 0.01);
  }
}

TEST_CASE("two-formats: kernels of unlike formats are not fitted together", "[calibration]") {
  Samples samples;
  for (const Format format : {Format::fp32, Format::bf16}) {
    KernelSample sample;
    sample.kernel = {KernelOp::matmul};
    sample.format = format;
    sample.shape = {8, 8, 8, 0, 1024, 768, 1e-6};
    sample.times = {1e-6};
    samples.kernels.push_back(sample);
  }
  CHECK(tests::refusal_on_page([&] { fit_kernels(samples); }) ==
        tests::expected_refusal("two-formats: kernels in fp32 beside kernels in bf16"));
  samples.kernels.pop_back();
  CHECK(fit_kernels(samples).rates.format == Format::fp32);
}

TEST_CASE("traces that were not measured, or without kernels, are not learned from", "[calibration]") {
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  const auto kind_of = [&](const Trace& trace) {
    try {
      samples_of(program, trace);
    } catch (const Refusal& refusal) {
      return refusal.kind();
    }
    return std::string("accepted");
  };
  SimOptions options;
  options.records_kernels = true;
  Trace trace = simulate_in_child(job, program, options);
  const auto refused = [&] { samples_of(program, trace); };
  CHECK(tests::refusal_on_page(refused) ==
        tests::expected_refusal("not-measured-run: a simulated trace to calibrate from"));
  trace.measured_ranks = {Rank(1)};
  CHECK(kind_of(trace) == "accepted");
  // Only the kernels of the rank that was measured are samples.
  std::int64_t count = 0, expected = 0;
  for (const KernelSample& sample : samples_of(program, trace).kernels)
    count += static_cast<std::int64_t>(sample.times.size());
  for (const KernelEvent& event : trace.kernels)
    expected +=
        event.step.rank == Rank(1) && !is_collective(find_kernel(program, event.step, event.kernel)->op);
  CHECK(count == expected);
  CHECK(samples_of(program, trace).optimizer.size() == 1);
  Trace edited = trace;
  edited.kernels.back().kernel = 1'000'000;
  CHECK(kind_of(edited) == "different-programs");
  edited = trace;
  edited.events.back().step.index = 1'000'000;
  CHECK(kind_of(edited) == "different-programs");
  trace.kernels.clear();
  CHECK(tests::refusal_on_page(refused) ==
        tests::expected_refusal("no-kernels: a trace without the kernels of its computes"));
}
