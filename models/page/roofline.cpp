#include "models/page/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "models/base/index.hpp"

namespace motley {
namespace {

// The formats in which kernels of the program on that chip compute.
std::set<Format> formats_of(const Cluster& cluster, const Program& program, const std::string& chip) {
  std::set<Format> formats;
  std::set<RankProgramId> seen;
  for (const Rank rank : program.ranks.ids()) {
    const RankEntry& entry = program.ranks[rank];
    if (cluster.chip_of(entry.chip).name != chip || !seen.insert(entry.rank_program).second) continue;
    for (const Block& block : program.rank_programs[entry.rank_program].blocks)
      for (const Kernel& kernel : block.kernels)
        if (kernel.flops > 0) formats.insert(kernel.format.value_or(program.precision));
  }
  return formats;
}

const Chip& find_chip(const Cluster& cluster, const std::string& name) {
  return std::find_if(cluster.groups.begin(), cluster.groups.end(),
                      [&](const NodeGroup& group) { return group.chip.name == name; })
      ->chip;
}

ChipRoofline empty_roofline(const Cluster& cluster, const Program& program, const std::string& name) {
  const Chip& chip = find_chip(cluster, name);
  ChipRoofline roofline;
  roofline.chip = name;
  roofline.memory_bandwidth = chip.memory_bandwidth.value;
  roofline.reachable_bandwidth = chip.software.bandwidth_efficiency.value;
  for (const Format format : formats_of(cluster, program, name))
    if (const auto peak = chip.peak_flops.find(format); peak != chip.peak_flops.end())
      roofline.peaks.push_back({format, peak->second.value, chip.software.gemm_efficiency.value});
  return roofline;
}

void add(const PassCost& pass, const KernelCost& cost, std::map<std::string, RooflinePoint>& points) {
  const std::string name = fmt::format("{}{}", name_of(cost.op), cost.recompute ? " (recompute)" : "");
  RooflinePoint& point = points[name];
  const auto times = static_cast<double>(pass.times);
  if (point.seconds <= times * cost.seconds) point.bound = cost.bound;  // of the pass that takes longest
  point.kernel = name;
  point.count += times * static_cast<double>(cost.count);
  point.flops += times * cost.computed_flops;
  point.bytes += times * cost.bytes;
  point.seconds += times * cost.seconds;
}

}  // namespace

std::vector<ChipRoofline> rooflines(const Job& job, const Program& program) {
  std::map<std::string, std::map<std::string, RooflinePoint>> points;  // by chip and kernel
  std::map<std::string, ChipRoofline> by_chip;
  for (const PassCost& pass : price_passes(job, program)) {
    const auto [known, is_new] = by_chip.try_emplace(pass.chip);
    if (is_new) known->second = empty_roofline(job.cluster, program, pass.chip);
    if (pass.kernels.empty()) known->second.optimizer_s += pass.seconds * static_cast<double>(pass.times);
    for (const KernelCost& cost : pass.kernels)
      if (cost.bound == Bound::network)
        known->second.network_s += cost.seconds * static_cast<double>(pass.times);
      else
        add(pass, cost, points[pass.chip]);
  }
  std::vector<ChipRoofline> listed;
  for (auto& [name, roofline] : by_chip) {
    for (const auto& [kernel, point] : points[name]) roofline.kernels.push_back(point);
    std::stable_sort(roofline.kernels.begin(), roofline.kernels.end(),
                     [](const RooflinePoint& a, const RooflinePoint& b) { return a.seconds > b.seconds; });
    listed.push_back(std::move(roofline));
  }
  return listed;
}

}  // namespace motley
