// Fits latency + bytes / bandwidth to measured transfers, and says how wrong the fit is on sizes that it has not seen.
// Read next: measurements.hpp, models/cluster/cluster.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/calibration/measurements.hpp"

namespace motley {

// Transfers of at least `from_bytes`, up to the next piece. A bandwidth of 0: bytes take no time.
struct TransferPiece {
  double from_bytes = 0;
  double latency_s = 0, bytes_per_s = 0;
  double seconds(double bytes) const { return latency_s + (bytes_per_s > 0 ? bytes / bytes_per_s : 0); }
};

// One kind of transfer between that many ranks. Errors are |predicted / measured - 1| of the sizes' medians.
struct TransferFit {
  TransferKind kind = TransferKind::all_reduce;
  int ranks = 2;
  bool beside_compute = false;
  std::int64_t sizes = 0;
  std::vector<TransferPiece> pieces;  // by from_bytes; the first begins at 0
  double mean_error = 0, worst_error = 0;
  // The same, each size predicted by a fit to the others. None: there are fewer than three sizes.
  std::optional<double> held_out_mean, held_out_worst;

  double seconds(double bytes) const;
  // Bytes/s of large transfers over each rank's links, as nccl-tests's "busbw"; 0: bytes take no time.
  double bus_bytes_per_s() const;
};

// By kind, then ranks, idle ones before those that compute. Outliers hardly move a fit: its residuals, relative to the
// prediction, have Huber's weights (1964). There are several pieces, at most three, only where they predict held-out
// sizes better.
std::vector<TransferFit> fit_transfers(const std::vector<TransferSample>& samples);

}  // namespace motley
