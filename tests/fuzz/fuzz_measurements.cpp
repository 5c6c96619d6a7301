// Fuzz target: a file of measurements is read, whichever program wrote it (a trace of Motley, torch.profiler,
// nccl-tests, perftest, measure-torch), and speeds are fitted to what it holds.
#include "models/calibration/kernel_fit.hpp"
#include "models/calibration/measured_files.hpp"
#include "models/calibration/transfer_fit.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

constexpr std::size_t kMostFitted = 60;  // shapes, or transfers: more are right to take longer

void fit_kernels_of(const Samples& samples, const std::string& path) {
  static const Chip host = load_chip("host-core");
  if (samples.kernels.size() > kMostFitted) return;
  Chip chip = host;
  chip.software.kernels = fit_kernels(samples, {.file = path}).rates;
  chip.software.kernels.source = "fuzz";
  const std::string text = print(chip, "");
  check_finite(text);
  if (!chip.software.kernels.rates.empty() || chip.software.kernels.optimizer)
    MOTLEY_CHECK(read_chip(parse_yaml(text, "printed.yaml"), host.name).software.kernels.rates ==
                 chip.software.kernels.rates);
}

void fit_transfers_of(const std::vector<TransferSample>& samples) {
  if (samples.size() > kMostFitted) return;
  for (const TransferFit& fit : fit_transfers(samples))
    for (const TransferPiece& piece : fit.pieces) {
      MOTLEY_CHECK(piece.latency_s >= 0 && piece.latency_s < 1e300);
      MOTLEY_CHECK(piece.bytes_per_s >= 0 && piece.bytes_per_s < 1e300);
    }
}

}  // namespace

void take(const std::string& input) {
  Measurements all;
  const std::string path = file_with(input);
  const Measurements one = read_measurements(path);
  add_measurements(one, all);
  MOTLEY_CHECK(all.samples.kernels.size() == one.samples.kernels.size());
  for (const KernelSample& sample : all.samples.kernels) MOTLEY_CHECK(!sample.times.empty());
  fit_kernels_of(all.samples, path);
  fit_transfers_of(all.transfers);
}

}  // namespace motley::tests
