// The Program is written by hand: a class of ranks, a stream, an instruction.
#include "models/measured_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "models/collective.hpp"
#include "models/csv.hpp"
#include "models/describe_text.hpp"
#include "models/network_cost.hpp"
#include "models/scenario.hpp"
#include "models/units.hpp"
#include "models/yaml_reader.hpp"

namespace motley {
namespace {

// Smallest messages of nccl-tests on A100, H200, B200 and MI350X (2023 to 2025; github:stas00/ml-engineering
// network/README.md, rccl-tests logs) take 28 us more than NCCL says of its own hops where calls are launched one by
// one, and 2 us where every rank has its process and calls are queued. Of that the hops of a ring of eight here hold
// 21 us already: 36 us, beside NCCL's 15.
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

double number(const CsvRow& row, const char* column) {
  double value = 0;
  if (read_number(row[column], value) != NumberFault::none || value <= 0)
    refuse(row, column, "a number above 0");
  return value;
}

std::int64_t count(const CsvRow& row, const char* column) {
  const double value = number(row, column);
  if (value != std::floor(value)) refuse(row, column, "a whole number");
  return static_cast<std::int64_t>(value);
}

MeasuredCollective read_row(const CsvRow& row) {
  MeasuredCollective made;
  made.id = row["id"];
  made.what = row["collective"];
  made.cluster = row["cluster"];
  made.source = row["source"];
  made.library = row["library"];
  made.date = row["date"];
  made.form = row["form"];
  if (made.id.empty()) refuse(row, "id", "every row has a name of its own");
  const std::vector<std::string> kinds(kKinds.begin(), kKinds.end());
  const auto kind = std::find(kinds.begin(), kinds.end(), made.what);
  if (kind == kinds.end()) refuse(row, "collective", suggest(made.what, kinds));
  if (made.what != kKinds.back()) made.kind = static_cast<CollectiveKind>(kind - kinds.begin());
  made.nodes = static_cast<int>(count(row, "nodes"));
  made.chips = static_cast<int>(count(row, "chips"));
  if (made.chips < 2 || made.chips % made.nodes != 0)
    refuse(row, "chips", "as many on each node, two at least");
  made.bytes = count(row, "bytes");
  if (!row["algorithm"].empty()) {
    const auto found = std::find_if(kAlgorithms.begin(), kAlgorithms.end(), [&](CollectiveAlgorithm each) {
      return name_of(each) == row["algorithm"];
    });
    if (found == kAlgorithms.end())
      refuse(row, "algorithm", "ring, in_switch, double_binary_tree, hierarchical");
    made.algorithm = *found;
  }
  if (row["calls"] != "queued" && row["calls"] != "launched") refuse(row, "calls", "queued, or launched");
  made.queued = row["calls"] == "queued";
  if (row["seconds"].empty() == row["bus_rate"].empty())
    refuse(row, "seconds", "one of seconds and bus_rate stands in each row");
  if (!row["seconds"].empty())
    made.seconds = number(row, "seconds");
  else
    made.seconds = bus_rate(made, 1) / number(row, "bus_rate");
  return made;
}

void add_class(Program& program, const char* name, const Instruction& instruction, StreamKind kind) {
  ProgramClass made;
  made.name = name;
  made.streams = {{StreamKind::compute, 0, {}}, {kind, 0, {instruction}}};
  made.blocks.resize(1);
  made.chunks = {{static_cast<int>(program.classes.size()), 0, 0}};
  program.classes.push_back(std::move(made));
}

Program program_of(const MeasuredCollective& of, const Cluster& cluster) {
  Program program;
  const int a_node = cluster.groups[0].chips_per_node, each = of.chips / of.nodes;
  Instruction instruction;
  instruction.bytes = of.bytes;
  if (of.kind) {
    instruction.op = Op::collective;
    instruction.collective = *of.kind;
    instruction.slot = kDataGroup;
    add_class(program, "member", instruction, StreamKind::collective);
    program.groups.push_back({GroupKind::data, {}});
  } else {
    instruction.op = Op::send;
    instruction.slot = kNext;
    add_class(program, "sender", instruction, StreamKind::send_activation);
    instruction.op = Op::recv;
    instruction.slot = kPrevious;
    add_class(program, "receiver", instruction, StreamKind::recv_activation);
  }
  const int half = of.chips / 2;
  for (int i = 0; i < of.chips; ++i) {
    RankEntry entry;
    entry.chip = i / each * a_node + i % each;
    entry.groups = {-1, -1, -1};
    entry.peers = {-1, -1};
    if (of.kind) {
      entry.groups[kDataGroup] = 0;
      program.groups[0].ranks.push_back(i);
    } else {
      entry.of_class = i / half;
      entry.stage = i / half;
      entry.peers[i < half ? kNext : kPrevious] = i < half ? i + half : i - half;
    }
    program.ranks.push_back(std::move(entry));
  }
  return program;
}

}  // namespace

std::vector<MeasuredCollective> read_measured_collectives(const std::string& path) {
  std::vector<MeasuredCollective> made;
  for (const CsvRow& row : parse_csv_table(read_text_file(path), path)) made.push_back(read_row(row));
  return made;
}

double bus_rate(const MeasuredCollective& of, double seconds) {
  const double moved =
      of.kind ? collective_steps(*of.kind, of.chips) / static_cast<double>(of.chips) : of.chips / 2;
  return moved * static_cast<double>(of.bytes) / seconds / 1e9;
}

double launch_s(const MeasuredCollective& of) { return of.queued ? kQueued_s : kLaunch_s; }

CollectiveRun make_run(const MeasuredCollective& of) {
  CollectiveRun run;
  const bool shipped = of.cluster.starts_with("tests/");
  run.job.cluster = load_cluster(shipped ? data_folder() + "/" + of.cluster : of.cluster);
  NodeGroup& group = run.job.cluster.groups.at(0);
  run.job.cluster.groups.resize(1);
  group.nodes = of.nodes;
  if (of.chips / of.nodes > group.chips_per_node)
    throw Refusal(Exit::usage, "bad-csv", {},
                  fmt::format("{}: a node of {} has {} chips, not {}", of.id, of.cluster,
                              group.chips_per_node, of.chips / of.nodes));
  build_topology(run.job.cluster);
  run.job.fidelity.data_parallel = CollectiveLevel::fluid;
  run.job.fidelity.algorithm = of.algorithm;
  run.job.fidelity.fold = true;
  run.program = program_of(of, run.job.cluster);
  return run;
}

}  // namespace motley
