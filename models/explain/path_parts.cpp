// Walks the links of a critical path. Each distinct compute instruction is priced once, by kernels; the wire of a
// message follows from its route.
#include "models/explain/path_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "models/base/index.hpp"
#include "models/cost/busy_ranks.hpp"
#include "models/cost/carrier.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/plan/levers.hpp"
#include "models/report/attribution.hpp"
#include "models/trace/critical_path.hpp"

namespace motley {
namespace {

// Place of a link: the fields of PathPart with these names.
struct Where {
  std::string on, group;
  std::vector<std::string> keys;
};

// The seconds of a kernel: its work, by what it is spent on, and its cost beyond the work.
struct KernelShares {
  Spent spent = Spent::memory;
  double work_s = 0, launch_s = 0;
};

KernelShares shares_of(const Kernel& kernel, const KernelTime& time, const Chip& chip) {
  KernelShares shares;
  if (is_collective(kernel.op)) return {Spent::tensor_parallel, time.seconds, 0};
  shares.launch_s = std::min(time.seconds, chip.software.kernel_overhead.value);
  shares.work_s = time.seconds - shares.launch_s;
  if (time.work_s >= time.memory_s && time.work_s > 0)
    shares.spent = is_attention(kernel.op) ? Spent::attention : Spent::matmul;
  return shares;
}

// What the report's purpose of a collective is called here.
Spent spent_on_collective(Purpose purpose) {
  switch (purpose) {
    case Purpose::tensor_parallel:
      return Spent::tensor_parallel;
    case Purpose::expert_parallel:
      return Spent::expert_parallel;
    case Purpose::context_parallel:
      return Spent::context_parallel;
    case Purpose::pipeline:
      return Spent::pipeline;
    default:
      return Spent::data_parallel;
  }
}

// The price of one compute instruction: seconds by Spent, for kernels that do not recompute and for those that do.
struct ComputeShares {
  std::array<std::array<double, 2>, kSpentCount> seconds = {};
  double sum_s = 0;
  void add(Spent spent, bool recompute, double more_s) {
    seconds[at(static_cast<int>(spent))][recompute ? 1 : 0] += more_s;
    sum_s += more_s;
  }
};

class PathPartition {
 public:
  PathPartition(const Job& job, const Program& program)
      : busy_(as_busy_as(program, job.cluster)),
        cluster_(busy_ ? *busy_ : job.cluster),
        program_(program),
        costs_(program, job.cluster) {}

  std::vector<PathPart> parts(const Trace& trace) {
    const CriticalPath path = find_critical_path(program_, trace);
    for (const CriticalLink& link : path.links) add(link.step, link.end_s - link.begin_s);
    add_seconds(Spent::waiting, false, {}, path.gap_s());
    std::vector<PathPart> parts;
    for (auto& [key, part] : parts_)
      if (part.seconds > 0) parts.push_back(std::move(part));
    return parts;
  }

 private:
  const NodeGroup& group_of(int chip) const { return cluster_.groups[at(cluster_.chip_group[at(chip)])]; }
  int chip_of(Rank rank) const { return program_.ranks[rank].chip; }

  void add_seconds(Spent spent, bool recompute, const Where& where, double seconds) {
    PathPart& part = parts_[{spent, recompute, where.on, where.group}];
    if (part.seconds == 0) part = {spent, recompute, where.on, where.group, 0, where.keys};
    part.seconds += seconds;
    for (const std::string& key : where.keys)
      if (std::find(part.keys.begin(), part.keys.end(), key) == part.keys.end()) part.keys.push_back(key);
  }

  void add(const Step& step, double seconds) {
    if (seconds <= 0) return;
    const Instruction& instruction = program_.at(step.rank, step.stream, step.index);
    const NodeGroup& nodes = group_of(chip_of(step.rank));
    switch (instruction.op()) {
      case Op::compute:
        return add_compute(step.rank, std::get<Compute>(instruction.body), seconds);
      case Op::optimizer:
        if (moved_tensors(instruction).empty())
          return add_seconds(Spent::optimizer, false, {nodes.chip.name, nodes.name, {memory_key(nodes)}},
                             seconds);
        return add_seconds(Spent::offload, false, {"host memory", nodes.name, {host_memory_key(nodes)}},
                           seconds);
      case Op::copy:
        return add_seconds(Spent::offload, false,
                           {"host link", nodes.name, {host_link_key(nodes), pcie_key(nodes)}}, seconds);
      case Op::send:
      case Op::recv:
        return add_seconds(Spent::pipeline, false, way_of_transfer(step.rank, instruction), seconds);
      case Op::collective: {
        const GroupSlot slot = std::get<Collective>(instruction.body).slot;
        const GroupId group = program_.ranks[step.rank].groups[slot].value();
        Spent spent = spent_on_collective(purpose_of(program_, step.rank, instruction));
        if (program_.groups[group].kind == GroupKind::embedding) spent = Spent::tied_embedding;
        return add_seconds(spent, false, way_of_group(group), seconds);
      }
    }
  }

  // Divides the seconds of a compute in proportion to the prices of its kernels.
  void add_compute(Rank rank, const Compute& compute, double seconds) {
    const NodeGroup& nodes = group_of(chip_of(rank));
    const ComputeShares& shares = priced(rank, compute);
    const Where chips{nodes.chip.name, nodes.name, {}};
    if (shares.sum_s <= 0) return add_seconds(Spent::launch, false, chips, seconds);
    for (int spent = 0; spent < kSpentCount; ++spent)
      for (const bool recompute : {false, true}) {
        const double part_s = shares.seconds[at(spent)][recompute ? 1 : 0] / shares.sum_s * seconds;
        if (part_s <= 0) continue;
        const auto kind = static_cast<Spent>(spent);
        if (kind == Spent::tensor_parallel) {
          add_seconds(kind, false, way_of_group(program_.ranks[rank].groups[kTensorGroup].value()), part_s);
          continue;
        }
        Where where = chips;
        where.keys = {kind == Spent::memory   ? memory_key(nodes)
                      : kind == Spent::launch ? overhead_key(nodes)
                                              : flops_key(nodes)};
        add_seconds(kind, recompute, where, part_s);
      }
  }

  const ComputeShares& priced(Rank rank, const Compute& compute) {
    const RankEntry& entry = program_.ranks[rank];
    const std::optional<GroupId> group =
        entry.groups.has(kTensorGroup) ? entry.groups[kTensorGroup] : std::nullopt;
    const RingCost* ring = group ? &costs_.ring(*group) : nullptr;
    const auto key = std::make_tuple(entry.rank_program, cluster_.chip_group[at(entry.chip)], ring, compute);
    const auto [entry_of_key, is_new] = priced_.try_emplace(key);
    ComputeShares& sums = entry_of_key->second;
    if (!is_new) return sums;
    const Chip& chip = cluster_.chip_of(entry.chip);
    const auto& kernels = program_.program_of(rank).blocks[compute.block].kernels;
    for (int i = compute.first_kernel; i < compute.last_kernel; ++i) {
      const Kernel& kernel = kernels[at(i)];
      const KernelTime time = kernel_time(program_.program_of(rank), kernel, program_.precision, chip, ring);
      const KernelShares shares = shares_of(kernel, time, chip);
      sums.add(shares.spent, kernel.recompute, shares.work_s);
      sums.add(Spent::launch, kernel.recompute, shares.launch_s);
    }
    return sums;
  }

  Where way_of_transfer(Rank rank, const Instruction& transfer) {
    const Rank peer = program_.ranks[rank].peers[transfer.message()->slot].value();
    const bool sends = transfer.op() == Op::send;
    const Rank from = sends ? rank : peer, to = sends ? peer : rank;
    const auto [known, is_new] = ways_.try_emplace({from, to});
    if (is_new) known->second = way(from, to, carrier_between(program_, cluster_, from, to));
    return known->second;
  }

  // The edge with the lowest rate, of those in ring order and those from the first member to each other.
  const Where& way_of_group(GroupId index) {
    const auto [known, is_new] = groups_.try_emplace(index);
    Where& slowest = known->second;
    if (!is_new) return slowest;
    const Group& group = program_.groups[index];
    const Carrier carrier = choose_carrier(program_, cluster_, group).carrier;
    std::optional<double> lowest;
    const auto consider = [&](Rank from, Rank to) {
      if (from == to) return;
      const double rate = route(cluster_, chip_of(from), chip_of(to), carrier).rate;
      if (lowest && rate >= *lowest) return;
      lowest = rate;
      slowest = way(from, to, carrier);
    };
    for (std::size_t i = 0; i < group.ranks.size(); ++i) {
      consider(group.ranks[i], group.ranks[(i + 1) % group.ranks.size()]);
      consider(group.ranks[0], group.ranks[i]);
    }
    return slowest;
  }

  Where way(Rank from_rank, Rank to_rank, const Carrier& carrier) const {
    const int from = chip_of(from_rank), to = chip_of(to_rank);
    const NodeGroup &a = group_of(from), &b = group_of(to);
    const Route taken = route(cluster_, from, to, carrier);
    if (taken.inside_node) {
      const bool tree = a.inside.kind == FabricKind::pcie && a.pcie;
      return {std::string(name_of(a.inside.kind)), a.name, {tree ? pcie_key(a) : inside_key(a)}};
    }
    const NicKind kind = joining_nic(cluster_, from, to, carrier).kind;
    Where where{std::string(name_of(kind)), a.name, {}};
    // The chips' own links are on the route too.
    const auto add_end = [&](const NodeGroup& end) {
      where.keys.push_back(nic_key(end, kind));
      if (end.pcie)
        where.keys.push_back(pcie_key(end));
      else if (end.inside.bandwidth <= taken.bandwidth)
        where.keys.push_back(inside_key(end));
    };
    add_end(a);
    if (&a != &b) {
      where.group =
          a.name < b.name ? fmt::format("{} - {}", a.name, b.name) : fmt::format("{} - {}", b.name, a.name);
      add_end(b);
    }
    const auto is_of = [](const Network& network, const NodeGroup& end) {
      return network.groups.empty() ||
             std::find(network.groups.begin(), network.groups.end(), end.name) != network.groups.end();
    };
    for (std::size_t i = 0; i < cluster_.networks.size(); ++i) {
      const Network& network = cluster_.networks[i];
      if (network.over == kind && (is_of(network, a) || is_of(network, b)))
        where.keys.push_back(network_key(i));
    }
    for (std::size_t i = 0; i < cluster_.site_link_id.size(); ++i) {
      const int id = cluster_.site_link_id[i];
      if (id < 0 || std::none_of(taken.links.begin(), taken.links.end(),
                                 [id](int link) { return (link | 1) == (id | 1); }))
        continue;
      where.on = "link between sites";
      where.group = name_of(cluster_.links[i]);
      where.keys.insert(where.keys.end(), {link_key(i), flow_key(i)});
    }
    return where;
  }

  const std::shared_ptr<const Cluster> busy_;  // see as_busy_as()
  const Cluster& cluster_;
  const Program& program_;
  CostTable costs_;
  std::map<std::tuple<Spent, bool, std::string, std::string>, PathPart> parts_;
  std::map<std::tuple<RankProgramId, int, const RingCost*, Compute>, ComputeShares> priced_;
  std::map<std::pair<Rank, Rank>, Where> ways_;
  std::map<GroupId, Where> groups_;
};

}  // namespace

std::string_view name_of(Spent spent) {
  switch (spent) {
    case Spent::matmul:
      return "matmuls";
    case Spent::attention:
      return "attention";
    case Spent::memory:
      return "memory-bound kernels";
    case Spent::launch:
      return "kernel overheads";
    case Spent::tensor_parallel:
      return "tensor parallel";
    case Spent::expert_parallel:
      return "expert parallel";
    case Spent::context_parallel:
      return "context parallel";
    case Spent::pipeline:
      return "pipeline transfers";
    case Spent::data_parallel:
      return "data parallel";
    case Spent::tied_embedding:
      return "tied embedding";
    case Spent::optimizer:
      return "optimizer";
    case Spent::offload:
      return "offload";
    case Spent::waiting:
      return "waiting";
  }
  return "?";
}

std::vector<PathPart> path_parts(const Job& job, const Program& program, const Trace& trace) {
  return PathPartition(job, program).parts(trace);
}

double duration_s(const Trace& trace) { return step_s(trace); }

}  // namespace motley
