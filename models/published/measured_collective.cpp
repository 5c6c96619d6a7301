// Reads measured collectives.
#include "models/published/measured_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/base/csv.hpp"
#include "models/base/data_files.hpp"
#include "models/base/index.hpp"
#include "models/base/text_file.hpp"
#include "models/base/units.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/compile/one_call.hpp"
#include "models/cost/network_cost.hpp"
#include "models/program/collective.hpp"
#include "models/scenario/scenario.hpp"

namespace motley {
namespace {

// Seconds of a launch. The smallest messages of nccl-tests on A100, H200, B200 and MI350X (2023 to 2025;
// github:stas00/ml-engineering network/README.md, rccl-tests logs) take 28 us more than NCCL states for its own hops
// if calls are launched one by one, and 2 us more if every rank has its process and calls are queued. The hops of a
// ring of eight contain 21 us of that here, because they take 36 us and NCCL's take 15 us.
constexpr double kLaunch_s = 7e-6, kQueued_s = 0;

constexpr std::array<std::string_view, 5> kKinds = {"all_reduce", "reduce_scatter", "all_gather",
                                                    "all_to_all", "point_to_point"};
constexpr std::array<CollectiveAlgorithm, 4> kAlgorithms = {
    CollectiveAlgorithm::ring, CollectiveAlgorithm::in_switch, CollectiveAlgorithm::double_binary_tree,
    CollectiveAlgorithm::hierarchical};

[[noreturn]] void refuse(const CsvRow& row, const char* column, const std::string& hint) {
  throw Refusal(Exit::usage, "bad-csv", row.where(column),
                fmt::format("`{}` cannot be a {}", row[column], column), hint);
}

// Bounds far beyond what can be measured: a message of 1 PiB, a nanosecond, a rate of 1 EB/s.
constexpr IntegerRange kMessage_bytes{1, std::int64_t{1} << 50};
constexpr NumberRange kSeconds{1e-9, 1e6}, kBusRate{1e-6, 1e9};

MeasuredCollective read_row(const CsvRow& row) {
  MeasuredCollective collective;
  collective.id = row["id"];
  collective.what = row["collective"];
  collective.cluster = row["cluster"];
  collective.source = row["source"];
  collective.library = row["library"];
  collective.date = row["date"];
  collective.form = row["form"];
  collective.places = {row.where("cluster"), row.where("chips"), row.where("form")};
  if (collective.id.empty()) refuse(row, "id", "every row has a name of its own");
  const std::vector<std::string> kinds(kKinds.begin(), kKinds.end());
  const auto kind = std::find(kinds.begin(), kinds.end(), collective.what);
  if (kind == kinds.end()) refuse(row, "collective", suggest(collective.what, kinds));
  if (collective.what != kKinds.back()) collective.kind = static_cast<CollectiveKind>(kind - kinds.begin());
  collective.nodes = static_cast<int>(to_count(row, "nodes", kPublishedChips));
  collective.chips = static_cast<int>(to_count(row, "chips", kPublishedChips));
  if (collective.chips < 2 || collective.chips % collective.nodes != 0)
    refuse(row, "chips", "as many on each node, two at least");
  collective.bytes = to_count(row, "bytes", kMessage_bytes);
  if (!row["algorithm"].empty()) {
    const auto named = std::find_if(kAlgorithms.begin(), kAlgorithms.end(), [&](CollectiveAlgorithm each) {
      return name_of(each) == row["algorithm"];
    });
    if (named == kAlgorithms.end())
      refuse(row, "algorithm", "ring, in_switch, double_binary_tree, hierarchical");
    collective.algorithm = *named;
  }
  if (row["calls"] != "queued" && row["calls"] != "launched") refuse(row, "calls", "queued, or launched");
  collective.queued = row["calls"] == "queued";
  if (row["seconds"].empty() == row["bus_rate"].empty())
    refuse(row, "seconds", "one of seconds and bus_rate stands in each row");
  if (!row["seconds"].empty())
    collective.seconds = to_number(row, "seconds", kSeconds);
  else
    collective.seconds = bus_rate(collective, 1) / to_number(row, "bus_rate", kBusRate);
  return collective;
}

void keep_first_group(Cluster& cluster) {
  cluster.groups.resize(1);
  cluster.links.clear();
  const NodeGroup& kept = cluster.groups[0];
  std::erase_if(cluster.networks, [&](const Network& network) {
    const auto& groups = network.groups;
    const bool here = groups.empty() || std::find(groups.begin(), groups.end(), kept.name) != groups.end();
    return !here || std::none_of(kept.nics.begin(), kept.nics.end(),
                                 [&](const Nic& nic) { return nic.kind == network.over; });
  });
  for (Network& network : cluster.networks)
    if (!network.groups.empty()) network.groups = {kept.name};
}

}  // namespace

std::vector<MeasuredCollective> read_measured_collectives(const std::string& path) {
  std::vector<MeasuredCollective> rows;
  for (const CsvRow& row : parse_csv_table(read_text_file(path), path)) rows.push_back(read_row(row));
  return rows;
}

double bus_rate(const MeasuredCollective& collective, double seconds) {
  const double moved = collective.kind ? collective_steps(*collective.kind, collective.chips) /
                                             static_cast<double>(collective.chips)
                                       : static_cast<double>(collective.chips / 2);
  return moved * static_cast<double>(collective.bytes) / seconds / 1e9;
}

double launch_s(bool queued) { return queued ? kQueued_s : kLaunch_s; }
double launch_s(const MeasuredCollective& collective) { return launch_s(collective.queued); }

CollectiveRun run_of(Cluster cluster, const OneCall& call, const std::vector<int>& chips,
                     CollectiveAlgorithm algorithm) {
  CollectiveRun run;
  run.job.cluster = std::move(cluster);
  run.job.fidelity.data_parallel = CollectiveLevel::fluid;
  run.job.fidelity.algorithm = algorithm;
  run.job.fidelity.fold = true;
  run.program = program_of(call, chips);
  return run;
}

CollectiveRun make_run(const MeasuredCollective& measured) {
  const bool shipped = measured.cluster.starts_with("tests/");
  Cluster cluster = find_cluster(shipped ? data_folder() + "/" + measured.cluster : measured.cluster, ".",
                                 measured.places.cluster);
  keep_first_group(cluster);
  NodeGroup& group = cluster.groups.at(0);
  group.nodes = measured.nodes;
  if (measured.chips / measured.nodes > group.chips_per_node)
    throw Refusal(Exit::usage, "bad-csv", measured.places.chips,
                  fmt::format("{}: a node of {} has {} chips, not {}", measured.id, measured.cluster,
                              group.chips_per_node, measured.chips / measured.nodes));
  if (std::int64_t{group.nodes} * group.chips_per_node > kPublishedChips.most)
    throw Refusal(Exit::usage, "bad-csv", measured.places.chips,
                  fmt::format("{}: {} nodes of {} chips", measured.id, group.nodes, group.chips_per_node),
                  fmt::format("at most {} chips", kPublishedChips.most));
  build_topology(cluster);
  const int each = measured.chips / measured.nodes;
  std::vector<int> chips;
  for (int i = 0; i < measured.chips; ++i) chips.push_back(i / each * group.chips_per_node + i % each);
  return run_of(std::move(cluster), {.kind = measured.kind, .bytes = measured.bytes}, chips,
                measured.algorithm);
}

}  // namespace motley
