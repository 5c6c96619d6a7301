// Times messages and collectives among ranks: those that a launcher started, on any hosts, or else processes of this
// one. Read next: hw/calibration/time_transfers.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hw/launch/place.hpp"
#include "hw/launch/rendezvous.hpp"
#include "models/base/refusal.hpp"
#include "models/calibration/measurements.hpp"

namespace motley {

struct TransferOptions {
  std::int64_t ranks = 2;  // if no launcher started this process
  double seconds = 60;     // no round of times begins later, but the first
  PlaceFlags place;
};

struct MeasuredTransfers {
  // Nothing: this process was not the first rank, and has nothing to say.
  std::optional<std::vector<TransferSample>> samples;
  Exit exit = Exit::ok;      // of the ranks that this process launched
  int ranks = 0, hosts = 0;  // that were measured
  std::string machine = {};  // the kind of all hosts; empty: they are unlike
};

// The kind of machine of all ranks' hosts, on rank 0. Empty: they are unlike, or this is another rank. All ranks call
// it.
std::string common_machine(Rendezvous& rendezvous);

// Every rank that a launcher started calls it. A process that no launcher started starts its own command once for each
// rank instead, and waits. Throws RunFailure where a rank is gone.
MeasuredTransfers measure_transfers(const TransferOptions& options);

}  // namespace motley
