// Samples as a table, one row for each shape that a probe timed: raw times, with the machine, the kernels and the
// number of busy ranks on every row, so that tables of unlike origins are never blended by accident. Read next:
// models/calibration/kernel_samples.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "models/calibration/kernel_samples.hpp"

namespace motley {

// What must be equal for samples to be one calibration.
struct SamplesOrigin {
  std::string machine;     // "AMD EPYC 9R14, 2 processors, 24 GiB"
  std::string library;     // "fast kernels, oneDNN 2.6.3"
  std::int64_t ranks = 1;  // ranks that were busy at once
  bool operator==(const SamplesOrigin&) const = default;
};

struct SamplesTable {
  SamplesOrigin origin;
  std::set<std::string> probes;    // that are complete
  Samples samples;                 // of the complete probes but those of a rank alone
  Samples alone;                   // of those
  std::size_t complete_bytes = 0;  // length of the text up to the end of the last complete probe
};

// Ends the name of a probe during which no other rank was busy, whatever the table's number of ranks.
inline constexpr std::string_view kAlone = ", alone";

std::string samples_csv_head();
// The rows of one probe. `probe`: its name.
std::string samples_csv_rows(const SamplesOrigin& origin, const std::string& probe, const Samples& samples);
// Reads a table. Rows of a probe that was cut off, as a killed or full writer leaves them, are passed over. Throws
// Refusal("two-origins") where rows differ in machine, library or ranks, Refusal("bad-csv") at other faults.
SamplesTable parse_samples_csv(const std::string& text, const std::string& file);

}  // namespace motley
