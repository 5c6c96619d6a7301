// The operations of nccl-tests, how it counts their bytes, and its layout of results (github:NVIDIA/nccl-tests a0b82b2,
// 2026-07, src/common.cu, src/util.cu and a file for each operation; rccl-tests has the same). Predictions are printed
// as its programs print measurements. Read next: models/calibration/nccl_tests.hpp, which reads them, and
// tools/commands/collective.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/base/words.hpp"
#include "models/cluster/cluster.hpp"
#include "models/program/collective.hpp"

namespace motley {

// send_recv: every rank sends to the next one and receives from the one before, all at once, as sendrecv_perf does.
enum class NcclOperation : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  send_recv
};
template <>
inline constexpr auto kWords<NcclOperation> = words("all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                    "reduce", "all_to_all", "gather", "scatter", "send_recv");

// Reads a name as people write it: all_reduce, allreduce, AllReduce, all_reduce_perf.
std::optional<NcclOperation> parse_operation(std::string_view text);
std::string nccl_program(NcclOperation operation);               // "all_reduce_perf"
std::optional<CollectiveKind> kind_of(NcclOperation operation);  // nothing: send_recv
// busbw / algbw: 2(R-1)/R for all_reduce, 1 for broadcast, reduce and send_recv, (R-1)/R for the others.
double bus_factor(NcclOperation operation, int ranks);

struct NcclType {
  std::string_view name;  // as nccl-tests prints it
  std::int64_t bytes = 4;
};
const std::vector<NcclType>& nccl_types();

// A line of the table: the columns `size` and `count`.
struct NcclSize {
  std::int64_t bytes = 0;  // of the whole payload, over all ranks where each has a part
  std::int64_t count = 0;  // elements, of one rank's part where each has a part
  bool operator==(const NcclSize&) const = default;
};
// What becomes of a size that was asked for: parts begin at multiples of 16 B.
NcclSize nccl_size(NcclOperation operation, std::int64_t asked, const NcclType& type, int ranks);

// Sizes from `least` to `most`, each `factor` times the one before or, if that is 0, `step` more. Refuses
// ("bad-size-range") a range without an end, or of more than kMostSizes sizes.
struct SizeRange {
  std::int64_t least = 8, most = std::int64_t{8} << 30, factor = 2, step = 0;
};
inline constexpr std::size_t kMostSizes = 1'024;
std::vector<std::int64_t> sizes_of(const SizeRange& range);
// Reads a size as nccl-tests does, of at most 1 PiB: 8, 8K, 8M, 8G, with powers of 1,024. Refuses ("bad-size").
std::int64_t parse_nccl_size(const std::string& text);

struct NcclRow {
  NcclSize size;
  double seconds = 0;
  std::string algorithm;  // of the prediction; empty: not known
  std::optional<double> measured_s;
  double algbw(double s) const { return static_cast<double>(size.bytes) / s / 1e9; }  // GB/s
};

struct NcclTable {
  NcclOperation operation = NcclOperation::all_reduce;
  int ranks = 2;
  NcclType type{"float", 4};
  SizeRange range;
  std::string cluster, software;     // names, for the head
  std::vector<std::string> devices;  // of each rank: "node 0 device 3 a100-80gb-sxm"
  std::vector<NcclRow> rows;
  double bus_factor() const { return motley::bus_factor(operation, ranks); }
  double average_busbw() const;  // of the predictions, GB/s: the mean over the rows, as nccl-tests prints it
};

// A size of a log, with the median of its times out of place.
struct MeasuredSize {
  std::int64_t bytes = 0;
  double seconds = 0;
  Location where;  // of its first row
};
// What a log holds: sizes ascending, each once.
struct MeasuredTable {
  NcclOperation operation = NcclOperation::all_reduce;
  int ranks = 0;
  std::vector<MeasuredSize> sizes;
};
// Gives the table the log's time of each of its sizes. Refuses ("other-nccl-log") another operation or number of ranks
// than the table's, and a size that the log lacks.
void use_measured(NcclTable& table, const MeasuredTable& log);

// The layout of nccl-tests, and the algorithm of each as a last column. In place and out of place have one prediction.
// Where measurements stand beside predictions the table has both, their ratio, and the mean, median and worst error.
std::string to_text(const NcclTable& table);
std::string to_json(const NcclTable& table);  // schema "motley.collective/1"

// The width at which nccl-tests prints a figure: two decimals, fewer where they have no room.
std::string nccl_figure(double value, int width);

}  // namespace motley
