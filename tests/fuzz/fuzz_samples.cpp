// Fuzz target: a table of a calibration's samples is read, written again, read back, and speeds are fitted to it.
#include "models/calibration/kernel_fit.hpp"
#include "models/calibration/samples_csv.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

void take(const std::string& input) {
  constexpr std::size_t kMostFitted = 60;
  static const Chip host = load_chip("host-core");
  const SamplesTable table = parse_samples_csv(input, "samples.csv");
  MOTLEY_CHECK(table.complete_bytes <= input.size());
  // What a writer that was stopped leaves behind is all that a second reader passes over.
  const SamplesTable kept = parse_samples_csv(input.substr(0, table.complete_bytes), "samples.csv");
  MOTLEY_CHECK(kept.probes == table.probes && kept.complete_bytes == table.complete_bytes);
  MOTLEY_CHECK(kept.samples.kernels.size() == table.samples.kernels.size());
  if (table.samples.kernels.size() > kMostFitted) return;
  Chip chip = host;
  chip.software.kernels = fit_kernels(table.samples, {"samples.csv", 1, 1}).rates;
  chip.software.kernels.source = "fuzz";
  check_finite(print(chip, ""));
  const bool has_quotes = (table.origin.machine + table.origin.library).find('"') != std::string::npos;
  if (has_quotes || table.probes.empty()) return;  // no host's name has them
  const std::string text = samples_csv_head() + samples_csv_rows(table.origin, "all", table.samples);
  const SamplesTable again = parse_samples_csv(text, "written.csv");
  MOTLEY_CHECK(again.origin == table.origin && again.complete_bytes == text.size());
  MOTLEY_CHECK(again.samples.kernels.size() == table.samples.kernels.size());
}

}  // namespace motley::tests
