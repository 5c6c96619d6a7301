#include "models/cost/costs_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/cost/busy_ranks.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/measured_kernels.hpp"
#include "models/cost/network_cost.hpp"

namespace motley {
namespace {

using nlohmann::ordered_json;

Bound bound_of(const KernelCost& cost) {
  if (is_collective(cost.op)) return Bound::network;
  const double roof_s = std::max(cost.work_s, cost.memory_s);
  if (cost.seconds - roof_s > roof_s) return Bound::overhead;
  return cost.work_s >= cost.memory_s ? Bound::compute : Bound::memory;
}

// Prices the passes of one rank.
class PassPricer {
 public:
  PassPricer(const Cluster& cluster, const Program& program, Rank rank)
      : program_(program),
        rank_(rank),
        rank_program_(program.program_of(rank)),
        nodes_(cluster.groups[at(cluster.chip_group[at(program.ranks[rank].chip)])]),
        chip_(nodes_.chip) {
    const auto& groups = program.ranks[rank].groups;
    if (groups.has(kTensorGroup) && groups[kTensorGroup])
      ring_ = ring_or_switch_cost(program, cluster, program.groups[*groups[kTensorGroup]]);
    if (rank_program_.expert_parallel > 1)
      pairs_ = pairwise_cost(program, cluster, program.groups[groups.get(kExpertGroup).value()]);
    if (rank_program_.context_parallel > 1)
      context_ring_ =
          ring_cost(program, cluster, program.groups[groups.get(context_slot(rank_program_)).value()]);
  }

  void add_to(std::vector<PassCost>& passes) const {
    for (BlockId block : rank_program_.blocks.ids()) passes.push_back(price_block(block));
    for (const Instruction& instruction : rank_program_.streams[kComputeStream].instructions)
      if (instruction.op() == Op::optimizer) {
        PassCost pass = empty_pass("optimizer");
        pass.times = 1;
        pass.seconds = compute_time(program_, rank_program_, instruction, chip_, ring()).seconds();
        passes.push_back(pass);
      }
    add_host_steps(passes);
  }

 private:
  const RingCost* ring() const { return ring_ ? &*ring_ : nullptr; }

  PassCost empty_pass(const std::string& name) const {
    PassCost pass;
    pass.stage = program_.ranks[rank_].stage;
    pass.chip = chip_.name;
    pass.rank = rank_;
    pass.pass = name;
    return pass;
  }

  // Adds the optimizer steps of the node's processor; all buckets form one pass.
  void add_host_steps(std::vector<PassCost>& passes) const {
    PassCost pass = empty_pass("optimizer on the host");
    for (const Stream& stream : rank_program_.streams)
      for (const Instruction& instruction : stream.instructions)
        if (const auto* step = instruction.as<OptimizerStep>(); step != nullptr && !step->tensors.empty()) {
          pass.times = 1;
          pass.seconds += host_step_s(program_, rank_program_, *step, nodes_);
        }
    if (pass.times > 0) passes.push_back(pass);
  }

  // Number of whole passes in a step: a pass that is cut at its collectives counts once, at its first piece.
  std::int64_t times_of(BlockId block) const {
    return std::count_if(rank_program_.streams[kComputeStream].instructions.begin(),
                         rank_program_.streams[kComputeStream].instructions.end(),
                         [&](const Instruction& instruction) {
                           const auto* compute = instruction.as<Compute>();
                           return compute != nullptr && compute->block == block && compute->first_kernel == 0;
                         });
  }

  PassCost price_block(BlockId block) const {
    PassCost pass = empty_pass(rank_program_.blocks[block].name);
    pass.times = times_of(block);
    std::map<std::pair<KernelOp, bool>, KernelCost> by_op;
    const MeasuredKernels measured(program_, rank_program_, chip_, ring());
    for (const Kernel& kernel : rank_program_.blocks[block].kernels) {
      KernelTime time = kernel_time(rank_program_, kernel, program_.precision, chip_, ring());
      time.seconds *= measured.factor(rank_program_.blocks[block], kernel);
      if (kernel.op == KernelOp::all_to_all)
        time.seconds = time.memory_s = collective_s(CollectiveKind::all_to_all, pairs_, kernel.bytes);
      else if (is_collective(kernel.op) && kernel.over == GroupKind::context)
        time.seconds = time.memory_s = collective_s(collective_of(kernel.op), context_ring_, kernel.bytes);
      KernelCost& cost = by_op[{kernel.op, kernel.recompute}];
      cost.op = kernel.op;
      cost.recompute = kernel.recompute;
      ++cost.count;
      cost.flops += kernel.flops;
      cost.computed_flops += computed_flops(kernel);
      cost.bytes += static_cast<double>(kernel.bytes);
      cost.seconds += time.seconds;
      cost.work_s += time.work_s;
      cost.memory_s += time.memory_s;
      pass.seconds += time.seconds;
    }
    for (auto& [op, cost] : by_op) {
      cost.bound = bound_of(cost);
      pass.kernels.push_back(cost);
    }
    return pass;
  }

  const Program& program_;
  Rank rank_;
  const RankProgram& rank_program_;
  const NodeGroup& nodes_;
  const Chip& chip_;
  std::optional<RingCost> ring_;
  RingCost pairs_;         // cost of exchanging tokens between the ranks of the expert group
  RingCost context_ring_;  // ring of the ranks that have parts of the same sequences
};

double achieved(double flops, double seconds) { return seconds > 0 ? flops / seconds : 0; }
double flops_of(const PassCost& pass) {
  double flops = 0;
  for (const KernelCost& kernel : pass.kernels) flops += kernel.computed_flops;
  return flops;
}

bool costs_the_same(const PassCost& a, const PassCost& b) {
  return a.pass == b.pass && a.chip == b.chip && a.times == b.times && a.seconds == b.seconds &&
         a.kernels == b.kernels;
}

// The passes of a stage on a chip, and the last of the consecutive stages that cost the same.
struct StageCosts {
  std::vector<PassCost> passes;
  int last_stage = 0;
  bool extends(const StageCosts& other) const {
    return passes[0].stage == other.last_stage + 1 &&
           std::equal(passes.begin(), passes.end(), other.passes.begin(), other.passes.end(), costs_the_same);
  }
};

std::vector<StageCosts> group_equal_stages(const std::vector<PassCost>& passes) {
  std::vector<StageCosts> single, groups;
  for (const PassCost& pass : passes) {
    if (single.empty() || single.back().last_stage != pass.stage || single.back().passes[0].chip != pass.chip)
      single.push_back({{}, pass.stage});
    single.back().passes.push_back(pass);
  }
  for (const StageCosts& stage : single) {
    if (!groups.empty() && stage.extends(groups.back()))
      groups.back().last_stage = stage.last_stage;
    else
      groups.push_back(stage);
  }
  return groups;
}

std::string print_pass(const PassCost& pass, int last_stage) {
  const std::string stages = last_stage == pass.stage ? fmt::format("stage {}", pass.stage)
                                                      : fmt::format("stages {}-{}", pass.stage, last_stage);
  std::string text = fmt::format("{} {} on {} (rank {}): {}, {} a step", stages, pass.pass, pass.chip,
                                 pass.rank, format_seconds(pass.seconds),
                                 pass.times == 1 ? "once" : fmt::format("{} times", pass.times));
  if (pass.kernels.empty()) return text + "\n";
  text += fmt::format(", {}\n", format_flops(achieved(flops_of(pass), pass.seconds)));
  const SecondsColumn seconds(pass.seconds);
  Table table("lrrrrrlr",
              {"kernel", "count", "FLOP", "bytes", seconds.unit(), "share", "bound by", "achieved"});
  for (const KernelCost& kernel : pass.kernels)
    table.add({fmt::format("{}{}", name_of(kernel.op), kernel.recompute ? " (recompute)" : ""),
               fmt::to_string(kernel.count), kernel.flops > 0 ? format_count(kernel.flops) : "-",
               format_bytes(kernel.bytes), seconds.print(kernel.seconds),
               format_percent(pass.seconds > 0 ? kernel.seconds / pass.seconds : 0),
               std::string(name_of(kernel.bound)),
               kernel.flops > 0 ? format_flops(achieved(kernel.computed_flops, kernel.seconds)) : "-"});
  return text + table.print();
}

}  // namespace

std::string_view name_of(Bound bound) {
  switch (bound) {
    case Bound::compute:
      return "compute";
    case Bound::memory:
      return "memory";
    case Bound::overhead:
      return "overhead";
    case Bound::network:
      return "network";
  }
  return "?";
}

std::vector<PassCost> price_passes(const Job& job, const Program& program) {
  std::map<std::pair<int, std::string>, Rank> first;  // first rank, by stage and chip
  for (Rank rank : program.ranks.ids()) {
    const RankEntry& entry = program.ranks[rank];
    first.try_emplace({entry.stage, job.cluster.chip_of(entry.chip).name}, rank);
  }
  std::vector<PassCost> passes;
  const std::shared_ptr<const Cluster> busy = as_busy_as(program, job.cluster);
  const Cluster& cluster = busy ? *busy : job.cluster;
  for (const auto& [stage_and_chip, rank] : first) PassPricer(cluster, program, rank).add_to(passes);
  return passes;
}

std::string costs_text(const std::vector<PassCost>& passes) {
  std::string text;
  for (const StageCosts& group : group_equal_stages(passes))
    for (const PassCost& pass : group.passes) {
      if (!text.empty()) text += "\n";
      text += print_pass(pass, group.last_stage);
    }
  return text;
}

std::string costs_json(const std::vector<PassCost>& passes, const std::vector<ListedCarrier>& carriers) {
  ordered_json json;
  json["schema"] = "motley.costs/1";
  auto& list = json["passes"] = ordered_json::array();
  for (const PassCost& pass : passes) {
    ordered_json kernels = ordered_json::array();
    for (const KernelCost& kernel : pass.kernels)
      kernels.push_back({{"op", name_of(kernel.op)},
                         {"recompute", kernel.recompute},
                         {"count", kernel.count},
                         {"flops", kernel.flops},
                         {"computed_flops", kernel.computed_flops},
                         {"bytes", kernel.bytes},
                         {"seconds", kernel.seconds},
                         {"share", pass.seconds > 0 ? kernel.seconds / pass.seconds : 0},
                         {"work_s", kernel.work_s},
                         {"memory_s", kernel.memory_s},
                         {"bound_by", name_of(kernel.bound)},
                         {"achieved_flops", achieved(kernel.computed_flops, kernel.seconds)}});
    list.push_back({{"stage", pass.stage},
                    {"chip", pass.chip},
                    {"rank", pass.rank},
                    {"pass", pass.pass},
                    {"times", pass.times},
                    {"seconds", pass.seconds},
                    {"kernels", kernels}});
  }
  auto& transports = json["transports"] = ordered_json::array();
  for (const ListedCarrier& each : carriers)
    transports.push_back({{"moved_for", each.what},
                          {"stages", each.stages},
                          {"count", each.count},
                          {"ranks", each.rank_count},
                          {"over", each.over},
                          {"by", each.by},
                          {"why", each.why}});
  return json_text(json);
}

}  // namespace motley
