// motley collective: what a collective takes on a cluster, size by size, in the layout of nccl-tests; and beside what
// nccl-tests measured there. It predicts as motley validate --collectives does. Read next:
// models/published/nccl_table.hpp, models/calibration/nccl_tests.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/median.hpp"
#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/calibration/nccl_tests.hpp"
#include "models/cluster/cluster.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/published/measured_collective.hpp"
#include "models/published/nccl_table.hpp"
#include "models/scenario/software.hpp"
#include "sim/workers/child.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/progress.hpp"
#include "tools/commands/rank_list.hpp"

namespace motley {
namespace {

constexpr int kMostRanks = 65'536;

struct CollectiveArguments {
  std::string operation, cluster, software = "none", type = "float", measured, chips, algorithm = "automatic",
                                  calls = "queued";
  int ranks = 0, per_node = 0;
  std::int64_t factor = 0;
  std::string least, most, step;
  bool json = false;
};

// The time of a size, which a child process sends.
struct PredictedSize {
  double seconds = 0;
  std::string algorithm;
};
template <class T>
requires std::is_same_v<std::remove_const_t<T>, PredictedSize>
auto fields_of(T& predicted) {
  auto& [seconds, algorithm] = predicted;
  return std::tie(seconds, algorithm);
}

NcclOperation read_operation(const std::string& text) {
  if (const auto operation = parse_operation(text)) return *operation;
  std::vector<std::string> known;
  for (const NcclOperation each : every<NcclOperation>()) known.emplace_back(name_of(each));
  throw Refusal(Exit::usage, "unknown-choice", {}, fmt::format("motley collective knows no `{}`", text),
                suggest(text, known));
}

NcclType read_type(const std::string& text) {
  std::vector<std::string> known;
  for (const NcclType& each : nccl_types()) {
    if (each.name == text) return each;
    known.emplace_back(each.name);
  }
  throw Refusal(Exit::usage, "unknown-choice", {}, fmt::format("nccl-tests has no type `{}`", text),
                suggest(text, known));
}

MeasuredTable read_log(const std::string& path) {
  MeasuredTable log;
  std::map<std::int64_t, std::vector<double>> times;
  std::map<std::int64_t, int> lines;
  for (const NcclTestsRow& row : read_nccl_rows(read_text_file(path), path)) {
    if (row.bytes <= 0 || row.seconds.front() <= 0) continue;
    const auto bytes = static_cast<std::int64_t>(row.bytes);
    log.operation = *parse_operation(name_of(row.kind));
    log.ranks = row.ranks;
    lines.try_emplace(bytes, row.line);
    times[bytes].push_back(row.seconds.front());
  }
  for (const auto& [bytes, seconds] : times)
    log.sizes.push_back({bytes, median_of(seconds), {path, lines.at(bytes), 1}});
  if (log.sizes.empty())
    throw Refusal(Exit::usage, "bad-measurements", {path, 0, 0}, "no size was measured out of place",
                  "the output of nccl-tests has a row for each size");
  return log;
}

SizeRange read_range(const CollectiveArguments& arguments) {
  SizeRange range;
  if (!arguments.least.empty()) range.least = parse_nccl_size(arguments.least);
  if (!arguments.most.empty()) range.most = parse_nccl_size(arguments.most);
  if (arguments.factor != 0) range.factor = arguments.factor;
  if (!arguments.step.empty()) {
    range.step = parse_nccl_size(arguments.step);
    range.factor = 0;
  }
  return range;
}

// A cluster of one group has as many nodes as the ranks need: a name says what nodes are like.
void grow(Cluster& cluster, int ranks, int per_node) {
  if (cluster.groups.size() != 1) return;
  NodeGroup& group = cluster.groups.front();
  const int each = per_node > 0 ? std::min(per_node, group.chips_per_node) : group.chips_per_node;
  const int nodes = (ranks + each - 1) / each;
  if (nodes <= group.nodes || (group.nics.empty() && nodes > 1)) return;
  group.nodes = nodes;
  build_topology(cluster);
}

// The chip of each rank: the listed ones, or the first ones of each node, node by node.
std::vector<int> chips_of(const CollectiveArguments& arguments, const Cluster& cluster) {
  std::vector<int> chips;
  if (!arguments.chips.empty()) {
    for (const Rank rank : parse_ranks(arguments.chips, cluster.chip_count())) chips.push_back(rank.value());
    if (arguments.ranks > 0 && arguments.ranks != static_cast<int>(chips.size()))
      throw Refusal(Exit::usage, "bad-rank-count", {},
                    fmt::format("--chips lists {} chips for {} ranks", chips.size(), arguments.ranks),
                    "leave --ranks out: there is one rank for each chip");
    return chips;
  }
  int taken = 0, last_node = -1;
  for (int chip = 0; chip < cluster.chip_count() && static_cast<int>(chips.size()) < arguments.ranks;
       ++chip) {
    const int node = cluster.chip_node[static_cast<std::size_t>(chip)];
    taken = node == last_node ? taken + 1 : 1;
    last_node = node;
    if (arguments.per_node == 0 || taken <= arguments.per_node) chips.push_back(chip);
  }
  if (static_cast<int>(chips.size()) < arguments.ranks)
    throw Refusal(
        Exit::infeasible, "rank-count", {.file = arguments.cluster},
        fmt::format("{} ranks{}, and cluster `{}` has {} chips on {} nodes", arguments.ranks,
                    arguments.per_node > 0 ? fmt::format(", {} on each node", arguments.per_node) : "",
                    cluster.name, cluster.chip_count(), last_node + 1),
        fmt::format("--ranks {}, or a larger cluster", chips.size()));
  return chips;
}

std::vector<std::string> devices_of(const Cluster& cluster, const std::vector<int>& chips) {
  std::vector<std::string> devices;
  for (const int chip : chips) {
    const auto index = static_cast<std::size_t>(chip);
    int first = chip;
    while (first > 0 && cluster.chip_node[static_cast<std::size_t>(first) - 1] == cluster.chip_node[index])
      --first;
    devices.push_back(fmt::format("node {:>4} device {:>2} {}", cluster.chip_node[index], chip - first,
                                  cluster.chip_of(chip).name));
  }
  return devices;
}

PredictedSize predict(const CollectiveArguments& arguments, const Cluster& cluster, const NcclTable& table,
                      const std::vector<int>& chips, std::int64_t bytes) {
  const auto kind = kind_of(table.operation);
  const CollectiveAlgorithm algorithm = *parse_word<CollectiveAlgorithm>(arguments.algorithm);
  CollectiveRun run =
      run_of(cluster, {.kind = kind, .bytes = bytes, .in_ring = !kind.has_value()}, chips, algorithm);
  PredictedSize predicted{.seconds = 0, .algorithm = "pairs"};
  if (kind) {
    CostTable costs(run.program, run.job.cluster);
    predicted.algorithm = name_of(costs.algorithm_of(*kind, GroupId(0), algorithm, bytes));
  }
  predicted.seconds = launch_s(arguments.calls == "queued") + last_end_s(simulate(run.job, run.program));
  return predicted;
}

// Refuses an algorithm that no size of the operation could use.
void require_algorithm(const CollectiveArguments& arguments, const Cluster& cluster, NcclOperation operation,
                       const std::vector<int>& chips) {
  const CollectiveAlgorithm wanted = *parse_word<CollectiveAlgorithm>(arguments.algorithm);
  const auto kind = kind_of(operation);
  if (!kind || wanted == CollectiveAlgorithm::automatic || wanted == CollectiveAlgorithm::fastest) return;
  const Program program = program_of({.kind = kind, .bytes = 0}, chips);
  const GroupShape shape = shape_of(program, cluster, program.groups[GroupId(0)]);
  if (does(wanted, *kind, shape)) return;
  std::vector<std::string> able;
  for (const CollectiveAlgorithm each : every<CollectiveAlgorithm>())
    if (each != CollectiveAlgorithm::fastest && each != CollectiveAlgorithm::automatic &&
        does(each, *kind, shape))
      able.emplace_back(name_of(each));
  throw Refusal(
      Exit::infeasible, "unknown-choice", {},
      fmt::format("{} does no {} of {} such ranks", name_of(wanted), name_of(operation), chips.size()),
      fmt::format("{}; automatic and fastest choose among these", fmt::join(able, ", ")));
}

std::vector<NcclSize> sizes_for(const CollectiveArguments& arguments, const NcclTable& table,
                                const std::optional<MeasuredTable>& log) {
  std::vector<NcclSize> sizes;
  const bool says_sizes =
      !arguments.least.empty() || !arguments.most.empty() || !arguments.step.empty() || arguments.factor != 0;
  if (log && !says_sizes) {
    for (const MeasuredSize& each : log->sizes) {
      NcclSize size = nccl_size(table.operation, each.bytes, table.type, table.ranks);
      size.bytes = each.bytes;  // as printed, of whatever type it was
      sizes.push_back(size);
    }
    return sizes;
  }
  for (const std::int64_t asked : sizes_of(table.range)) {
    const NcclSize size = nccl_size(table.operation, asked, table.type, table.ranks);
    if (size.bytes > 0 && (sizes.empty() || !(sizes.back() == size))) sizes.push_back(size);
  }
  if (sizes.empty())
    throw Refusal(Exit::usage, "bad-size-range", {},
                  fmt::format("no size from {} B to {} B has 16 B for each of {} ranks", table.range.least,
                              table.range.most, table.ranks),
                  fmt::format("-e {} at least", 16 * table.ranks));
  return sizes;
}

Exit run(const CollectiveArguments& arguments) {
  NcclTable table;
  table.operation = read_operation(arguments.operation);
  table.type = read_type(arguments.type);
  table.range = read_range(arguments);
  std::optional<MeasuredTable> log;
  if (!arguments.measured.empty()) log = read_log(arguments.measured);
  CollectiveArguments asked = arguments;
  if (asked.ranks == 0 && asked.chips.empty() && log) asked.ranks = log->ranks;
  if (asked.ranks == 0 && asked.chips.empty())
    throw Refusal(Exit::usage, "bad-rank-count", {}, "nothing says how many ranks there are", "--ranks 16");
  Cluster cluster = load_cluster(asked.cluster);
  if (asked.software != "none") use_software(asked.software, cluster);
  if (asked.chips.empty()) grow(cluster, asked.ranks, asked.per_node);
  const std::vector<int> chips = chips_of(asked, cluster);
  if (chips.size() < 2)
    throw Refusal(Exit::usage, "bad-rank-count", {}, "one rank has nobody to exchange bytes with",
                  "--ranks 2");
  table.ranks = static_cast<int>(chips.size());
  table.cluster = cluster.name;
  table.software = asked.software;
  table.devices = devices_of(cluster, chips);
  require_algorithm(asked, cluster, table.operation, chips);
  for (const NcclSize& size : sizes_for(asked, table, log)) table.rows.push_back({size, 0, "", {}});
  if (log) {
    use_measured(table, *log);
    table.range.least = table.rows.front().size.bytes;
    table.range.most = table.rows.back().size.bytes;
  }
  Progress progress("predicting", static_cast<std::int64_t>(table.rows.size()));
  PoolOptions pool;
  pool.name = [&](std::size_t i) {
    return fmt::format("{} of {} B", name_of(table.operation), table.rows[i].size.bytes);
  };
  pool.progress = [&](std::size_t, std::size_t ended) { progress.show(static_cast<std::int64_t>(ended)); };
  const std::vector<PredictedSize> predicted = map_in_pool(
      table.rows.size(),
      [&](std::size_t i) { return predict(asked, cluster, table, chips, table.rows[i].size.bytes); }, pool);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    table.rows[i].seconds = predicted[i].seconds;
    table.rows[i].algorithm = predicted[i].algorithm;
  }
  write_result(asked.json ? to_json(table) : to_text(table), "");
  return Exit::ok;
}

}  // namespace

void add_collective(const Command& program) {
  const auto arguments = std::make_shared<CollectiveArguments>();
  const Command command = program.subcommand(
      "collective", "Predict a collective on a cluster, size by size, as nccl-tests prints measurements");
  command
      .option("operation", arguments->operation,
              "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter or "
              "send_recv; "
              "nccl-tests' names (alltoall, sendrecv_perf) are understood")
      .required();
  command
      .option(
          "--cluster", arguments->cluster,
          "a name of `motley list clusters`, or a file; one of equal nodes gets as many as the ranks need")
      .required();
  command
      .option("-n,--ranks", arguments->ranks, "how many ranks; default: as many as the log of --measured has")
      .between(1, kMostRanks);
  command.option("--per-node", arguments->per_node, "ranks on each node; default: all its chips")
      .between(1, kMostRanks);
  command.option("--chips", arguments->chips, "the chips of the ranks, as 0-3,8-11, instead of --ranks");
  command.option("-b,--minbytes", arguments->least,
                 "smallest size: 8, 8K, 8M, 8G (powers of 1024); default: 8");
  command.option("-e,--maxbytes", arguments->most, "largest size; default: 8G");
  const Option factor = command.option("-f,--stepfactor", arguments->factor,
                                       "each size is this many times the one before; default: 2");
  command.option("-i,--stepbytes", arguments->step, "each size is this much more than the one before")
      .not_with(factor);
  command.option("-d,--datatype", arguments->type, "the type of elements, which only decides their count")
      .shows_default();
  std::vector<std::string> algorithms;
  for (const CollectiveAlgorithm each : every<CollectiveAlgorithm>())
    if (each != CollectiveAlgorithm::once_a_node && each != CollectiveAlgorithm::dissemination)
      algorithms.emplace_back(name_of(each));
  command
      .option("--algorithm", arguments->algorithm,
              "automatic is what NCCL would choose, fastest what takes least by Motley's costs")
      .one_of(algorithms)
      .shows_default();
  command
      .option("--software", arguments->software,
              "a name of `motley list software`, whose share of the NICs' rate counts; none: the cluster's "
              "own figures")
      .shows_default();
  command
      .option("--calls", arguments->calls,
              "queued: calls are queued ahead, one process for each rank; launched: one by one, 7 us more")
      .one_of({"queued", "launched"})
      .shows_default();
  command.option(
      "--measured", arguments->measured,
      "a log of nccl-tests or rccl-tests, or an output of this command: its times stand beside the "
      "predictions; its sizes are used where -b, -e, -f and -i say none");
  add_max_input(command);
  command.flag("--json", arguments->json, "print JSON (schema motley.collective/1)");
  command.example(
      "motley collective all_reduce --cluster dgx-a100 --ranks 16 -b 8 -e 8G\n"
      "  motley collective all_gather --cluster dgx-a100 --measured all_gather_perf.log");
  command.runs([arguments] { return run(*arguments); });
}

}  // namespace motley
