// Reads what nccl-tests print (all_reduce_perf and its kin, 2.0 to 2.18), and rccl-tests, which print the same: the
// time of each size, out of place and in place. Read next: transfer_fit.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/calibration/measurements.hpp"

namespace motley {

bool is_nccl_tests(const std::string& text);

// The collective is the one that the output names; older versions name none, and then the name of the file must.
// Throws Refusal("bad-measurements") at the line.
std::vector<TransferSample> read_nccl_tests(const std::string& text, const std::string& path);

}  // namespace motley
