// Walks the links of a critical path. Each distinct compute instruction is priced once, by kernels.
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
#include "models/cost/compute_cost.hpp"
#include "models/explain/wires.hpp"
#include "models/plan/levers.hpp"
#include "models/report/attribution.hpp"
#include "models/trace/critical_path.hpp"

namespace motley {
namespace {

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
        costs_(program, job.cluster),
        wires_(program, cluster_) {}

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

  void add_seconds(Spent spent, bool recompute, const Wire& where, double seconds) {
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
        return add_seconds(Spent::pipeline, false, wires_.of_transfer(step.rank, instruction), seconds);
      case Op::collective: {
        const GroupSlot slot = std::get<Collective>(instruction.body).slot;
        const GroupId group = program_.ranks[step.rank].groups[slot].value();
        Spent spent = spent_on_collective(purpose_of(program_, step.rank, instruction));
        if (program_.groups[group].kind == GroupKind::embedding) spent = Spent::tied_embedding;
        return add_seconds(spent, false, wires_.of_group(group), seconds);
      }
    }
  }

  // Divides the seconds of a compute in proportion to the prices of its kernels.
  void add_compute(Rank rank, const Compute& compute, double seconds) {
    const NodeGroup& nodes = group_of(chip_of(rank));
    const ComputeShares& shares = priced(rank, compute);
    const Wire chips{nodes.chip.name, nodes.name, {}};
    if (shares.sum_s <= 0) return add_seconds(Spent::launch, false, chips, seconds);
    for (int spent = 0; spent < kSpentCount; ++spent)
      for (const bool recompute : {false, true}) {
        const double part_s = shares.seconds[at(spent)][recompute ? 1 : 0] / shares.sum_s * seconds;
        if (part_s <= 0) continue;
        const auto kind = static_cast<Spent>(spent);
        if (kind == Spent::tensor_parallel) {
          add_seconds(kind, false, wires_.of_group(program_.ranks[rank].groups[kTensorGroup].value()),
                      part_s);
          continue;
        }
        Wire where = chips;
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

  const std::shared_ptr<const Cluster> busy_;  // see as_busy_as()
  const Cluster& cluster_;
  const Program& program_;
  CostTable costs_;
  std::map<std::tuple<Spent, bool, std::string, std::string>, PathPart> parts_;
  std::map<std::tuple<RankProgramId, int, const RingCost*, Compute>, ComputeShares> priced_;
  Wires wires_;
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
