// Reads what perftest's programs print: ib_write_bw, ib_read_bw, ib_send_bw, ib_write_lat, ib_read_lat, ib_send_lat.
// Read next: transfer_fit.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/calibration/measurements.hpp"

namespace motley {

bool is_perftest(const std::string& text);

// Bandwidths are the averages, latencies the typical ones (the median). Throws Refusal("bad-measurements") at the line.
std::vector<TransferSample> read_perftest(const std::string& text, const std::string& path);

}  // namespace motley
