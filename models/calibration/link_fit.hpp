// The latency and the bandwidth of a link between two ranks, from transfers that a run really made. Read next:
// models/calibration/relative_fit.hpp, tools/commands/measure_links.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/calibration/measurements.hpp"

namespace motley {

// A message or a collective that was measured, and what the simulator makes of it.
struct LinkSample {
  std::string kind;             // "all_reduce", "recv"
  double latencies = 0;         // how often its seconds have the link's latency in them
  double bytes = 0;             // how many bytes, one after the other, its seconds have in them
  double seconds = 0;           // measured, since all sides were ready
  bool beside_compute = false;  // its rank computed meanwhile
};

struct TransferErrors {
  std::string kind;  // or "idle", "beside a compute"
  std::int64_t transfers = 0;
  double mean_error = 0;  // |predicted / measured - 1|
  double bias = 0;        // median of predicted / measured - 1
};

struct LinkFit {
  double latency_s = 0, bytes_per_s = 0;
  std::int64_t transfers = 0;
  double mean_error = 0, worst_error = 0;
  std::optional<double> held_out_mean, held_out_worst;  // each transfer predicted by a fit to others
  std::vector<TransferErrors> by_kind;  // by name, and then idle ones and those beside a compute
};

// None: the transfers do not tell latency and bandwidth apart.
// Assumes: what a transfer takes is a number of latencies and a number of bytes at the bandwidth, as the simulator
// counts them, whether its rank computes meanwhile or not.
std::optional<LinkFit> fit_link(const std::vector<LinkSample>& transfers);

struct LinkFigures {
  double latency_s = 0, bytes_per_s = 0;
};

// From messages of idle ranks (send_latency): the latency is that of the smallest, and the bandwidth is how many bytes
// the largest have more than the next, in how much more time. Links that let a burst pass at once show their bandwidth
// there alone. Nothing: there are no messages of fewer than 100 bytes, or not of two sizes above 100 KB, or the larger
// ones take no longer.
std::optional<LinkFigures> link_between(const std::vector<TransferSample>& transfers);

}  // namespace motley
