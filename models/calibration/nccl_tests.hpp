// Reads what nccl-tests print (all_reduce_perf and its kin, 2.0 to 2.18), and rccl-tests, which print the same: the
// time of each size, out of place and in place. Read next: transfer_fit.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/calibration/measurements.hpp"

namespace motley {

// A row of the output.
struct NcclTestsRow {
  TransferKind kind = TransferKind::all_reduce;
  int ranks = 2;
  double bytes = 0;
  std::vector<double> seconds;  // out of place, and in place if the table has it; 0: not measured
  int line = 0;
};
// Throws as read_nccl_tests() does. At least one row has bytes and a time.
std::vector<NcclTestsRow> read_nccl_rows(const std::string& text, const std::string& path);

bool is_nccl_tests(const std::string& text);

// The collective is the one that the output names; older versions name none, and then the name of the file must.
// Throws Refusal("bad-measurements") at the line.
std::vector<TransferSample> read_nccl_tests(const std::string& text, const std::string& path);

}  // namespace motley
