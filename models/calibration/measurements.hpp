// What files of measurements hold, Motley's own traces and those of other programs. Read next: measured_files.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/base/words.hpp"
#include "models/calibration/kernel_samples.hpp"

namespace motley {

// What nccl-tests and perftest measure. nccl-tests gives the time of a collective. A bandwidth test of perftest gives
// the time of each message of many in flight, a latency test that of one message one way, and of a read both ways.
enum class TransferKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
  send_recv,
  write_bandwidth,
  read_bandwidth,
  send_bandwidth,
  write_latency,
  read_latency,
  send_latency,
};
template <>
inline constexpr auto kWords<TransferKind> = words("all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                                   "broadcast", "reduce", "gather", "scatter", "send_recv",
                                                   "write bandwidth", "read bandwidth", "send bandwidth",
                                                   "write latency", "read latency", "send latency");
constexpr bool is_collective(TransferKind kind) { return kind <= TransferKind::send_recv; }

struct TransferSample {
  TransferKind kind = TransferKind::all_reduce;
  int ranks = 2;
  double bytes = 0;  // the whole payload, as Collective::bytes; of perftest, a message
  double seconds = 0;
  bool beside_compute = false;  // the ranks computed meanwhile
};

// Work of a GPU that is in a profile, but of no kind that Motley has.
struct UnreadWork {
  std::int64_t times = 0;
  double seconds = 0;
};

struct Measurements {
  Samples samples;
  std::vector<TransferSample> transfers;
  // Of profiles: seconds that GPUs worked, and the part of them that is in no sample, by the operation's name.
  double gpu_s = 0;
  std::map<std::string, UnreadWork> unread;
};

}  // namespace motley
