// Golden text: what tools/measure-torch measured on an H200, as samples and as speeds. MOTLEY_REWRITE=1 in the
// environment writes the file again; `git diff` then shows what has changed.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/calibration/kernel_fit.hpp"
#include "models/calibration/measured_files.hpp"
#include "models/calibration/torch_kernels.hpp"
#include "models/cost/rated_kernels.hpp"
#include "models/scenario/scenario.hpp"

using namespace motley;

namespace {

const std::string kTree = MOTLEY_SOURCE_DIR;
const std::string kColumns = "op,variant,m,n,k,groups,format,l2,flops,bytes,median_s,min_s,max_s,repeats\n";

std::string text_of(const Measurements& measurements, const KernelFit& fit) {
  std::string text;
  for (const KernelSample& sample : measurements.samples.kernels)
    text +=
        fmt::format("{} {} x {} x {}, groups {}, {}: {} FLOP, {} bytes, {:.4e} s\n", name_of(sample.kernel),
                    sample.shape.m, sample.shape.n, sample.shape.k, sample.shape.groups,
                    name_of(sample.format), sample.shape.flops, sample.shape.bytes, sample.shape.seconds);
  for (const OptimizerSample& sample : measurements.samples.optimizer)
    text += fmt::format("optimizer: {} bytes, {:.4e} s\n", sample.bytes, sample.seconds);
  for (const auto& [name, work] : measurements.unread)
    text += fmt::format("not read: {}, {} times, {:.4e} s\n", name, work.times, work.seconds);
  for (const OpFit& op : fit.ops)
    text +=
        fmt::format("fit: {}: {} shapes, overhead {:.3g} s, {:.3g} FLOP/s, {:.3g} B/s\n", name_of(op.kernel),
                    op.shapes, op.rate.overhead_s, op.rate.flops_per_s, op.rate.bytes_per_s);
  return text;
}

std::string complaint_of(const std::string& text) {
  try {
    read_torch_kernels(text, "kernels.csv");
  } catch (const Refusal& refusal) {
    return refusal.kind() + ": " + refusal.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a table of kernels that measure-torch wrote becomes samples and speeds, word for word",
          "[calibration]") {
  const Measurements measurements = read_measurements(kTree + "/tests/validation/torch/kernels-h200.csv");
  const std::string text = text_of(measurements, fit_kernels(measurements.samples));
  const std::string path = kTree + "/tests/models/calibration/golden/kernels-h200.txt";
  if (std::getenv("MOTLEY_REWRITE") != nullptr) std::ofstream(path) << text;
  CHECK(text == read_text_file(path));
  // Each second of the rows whose inputs were cold is in a sample or named.
  double seconds = 0;
  for (const KernelSample& sample : measurements.samples.kernels)
    for (const double each : sample.times) seconds += each;
  for (const OptimizerSample& sample : measurements.samples.optimizer) seconds += sample.seconds;
  for (const auto& [name, work] : measurements.unread) seconds += work.seconds;
  CHECK(seconds == Approx(measurements.gpu_s).epsilon(1e-9));
}

TEST_CASE("a kernel has the time of its row where the Program has that shape", "[calibration]") {
  const Measurements measurements =
      read_torch_kernels(kColumns +
                             "matmul,,128,256,64,0,bf16,cold,4194304,114688,2.8e-05,2.5e-05,3e-05,25\n"
                             "matmul,,128,256,64,0,bf16,warm,4194304,114688,1.0e-05,1e-05,1e-05,25\n"
                             "matmul,,128,256,64,0,fp32,cold,4194304,229376,9.0e-05,9e-05,9e-05,25\n"
                             "matmul,,256,256,64,0,bf16,cold,8388608,212992,4.0e-05,4e-05,4e-05,25\n",
                         "kernels.csv");
  REQUIRE(measurements.samples.kernels.size() == 2);
  const KernelRates rates = fit_kernels(measurements.samples).rates;
  Kernel kernel;
  kernel.op = KernelOp::matmul;
  kernel.m = 128, kernel.n = 256, kernel.k = 64;
  kernel.flops = 4194304;
  kernel.bytes = 114688;
  CHECK(how_known({KernelOp::matmul}, kernel, Format::bf16, rates) == Known::measured);
  CHECK(rated_time({KernelOp::matmul}, kernel, Format::bf16, rates)->seconds == Approx(2.5e-5));
  CHECK(how_known({KernelOp::matmul}, kernel, Format::fp32, rates) == Known::assumed);
  CHECK(measurements.unread.at("matmul fp32").times == 1);
}

TEST_CASE("a table of kernels without shapes, times or formats is refused at its cell", "[calibration]") {
  const auto with = [](const std::string& cells) { return complaint_of(kColumns + cells + ",1e-5,25\n"); };
  CHECK(with("matmul,,128,256,64,0,bf16,cold,4194304,114688,3e-5,2.5e-05") == "");
  CHECK(with("matmul,,0,0,0,0,bf16,cold,4194304,114688,3e-5,2.5e-05")
            .starts_with("bad-csv: kernels.csv:2:9: "));
  CHECK(with("matmul,,128,256,64,0,bf16,cold,0,114688,3e-5,2.5e-05").starts_with("bad-csv: kernels.csv:2:"));
  CHECK(with("norm,rms,0,0,0,0,bf16,cold,0,0,3e-5,2.5e-05").starts_with("bad-csv: kernels.csv:2:"));
  CHECK(with("matmul,,128,256,64,0,bf17,cold,4194304,114688,3e-5,2.5e-05")
            .starts_with("bad-csv: kernels.csv:2:"));
  CHECK(
      with("matmul,,128,256,64,0,bf16,cold,4194304,114688,3e-5,nan").starts_with("bad-csv: kernels.csv:2:"));
  CHECK(with("launch,two events,0,0,0,0,bf16,cold,0,0,3e-5,2.5e-05")
            .starts_with("bad-measurements: kernels.csv:1:1"));
  CHECK(with("matmul,,128,256,64,0,bf16,warm,4194304,114688,3e-5,2.5e-05").starts_with("bad-measurements: "));
}

TEST_CASE("a damaged table of kernels is refused at its line, or read", "[calibration]") {
  const std::string whole = read_text_file(kTree + "/tests/validation/torch/kernels-h100.csv");
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 60; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 3; ++i) {
      const std::size_t at = kColumns.size() + random() % (whole.size() - kColumns.size());
      damaged[at] = "0-e,\"x\n"[random() % 7];
    }
    const std::string complaint = complaint_of(damaged);
    refused += !complaint.empty();
    INFO(complaint);
    CHECK((complaint.empty() || complaint.find(": kernels.csv:") != std::string::npos));
  }
  CHECK(refused > 5);
}
