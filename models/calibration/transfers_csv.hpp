// The table of transfers that `motley calibrate --transfers` measured: a row for each time. Read next:
// models/calibration/transfer_fit.hpp, hw/calibration/time_transfers.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/calibration/measurements.hpp"

namespace motley {

std::string print_transfers(const std::vector<TransferSample>& samples);

bool is_transfers_csv(const std::string& text);
// Throws Refusal("bad-csv") at the cell.
std::vector<TransferSample> read_transfers_csv(const std::string& text, const std::string& path);

}  // namespace motley
