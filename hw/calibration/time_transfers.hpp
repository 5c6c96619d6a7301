// Times messages and collectives among all ranks of a run, of any size, idle and beside a compute. Every rank calls it
// at the same time, and all agree on each time: a transfer takes as long as on the rank where it took longest. Read
// next: hw/communicator/communicator.hpp, models/calibration/transfer_fit.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "hw/communicator/communicator.hpp"
#include "models/calibration/measurements.hpp"

namespace motley {

struct TransferTimeOptions {
  std::vector<std::int64_t> bytes = standard_transfer_bytes();
  std::int64_t rounds = 9;  // times of each kind and size at most, with all others in between
  double seconds = 60;      // no round begins later, but the first
  double seconds_a_time =
      0.01;  // a time is the mean of as many transfers as take this long, but at most of `most`
  std::int64_t most = 64;
  double longest_s = 0.5;  // a size whose transfers take longer ends its kind: larger ones are not tried
  // What a rank computes beside its transfers, over and over; null: transfers are timed on idle ranks only.
  std::function<void()> compute = {};
  // Called on every rank after each round, with its number (from 1).
  std::function<void(std::int64_t)> on_round = {};

  // 0 B to 64 MiB.
  static std::vector<std::int64_t> standard_transfer_bytes();
};

// Transfers of one kind and size. Bytes are those of TransferSample.
struct TimedTransfers {
  TransferKind kind = TransferKind::all_reduce;  // send_latency: a message there and back, halved
  std::int64_t bytes = 0;
  bool beside_compute = false;
  std::vector<double> times;  // one a round
};

// Between 2 ranks or more; the messages go between the first two. The same result on every rank. Throws what the
// messenger throws.
std::vector<TimedTransfers> time_transfers(Communicator& ranks, const TransferTimeOptions& options);

}  // namespace motley
