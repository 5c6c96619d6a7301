#include "tools/show_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "models/compute_cost.hpp"
#include "models/units.hpp"

namespace motley {
namespace {

void add(std::vector<KernelCost>& costs, const KernelCost& one) {
  const auto same = std::find_if(costs.begin(), costs.end(), [&](const KernelCost& known) {
    return known.of_class == one.of_class && known.pass == one.pass && known.kernel == one.kernel &&
           known.chip == one.chip;
  });
  if (same == costs.end()) {
    costs.push_back(one);
    return;
  }
  same->count += one.count;
  same->flops += one.flops;
  same->bytes += one.bytes;
  same->seconds += one.seconds;
  same->work_s += one.work_s;
  same->memory_s += one.memory_s;
}

}  // namespace

std::vector<KernelCost> kernel_costs(const Program& program, const Cluster& cluster) {
  std::vector<KernelCost> costs;
  std::vector<bool> seen(program.classes.size());
  for (const RankEntry& rank : program.ranks) {  // the first rank of a class stands for it
    const auto index = static_cast<std::size_t>(rank.of_class);
    if (seen[index]) continue;
    seen[index] = true;
    const ProgramClass& of_class = program.classes[index];
    const Chip& chip = cluster.chip_of(rank.chip);
    std::optional<RingCost> ring;
    if (rank.groups.size() > kTensorGroup && rank.groups[kTensorGroup] >= 0)
      ring = ring_cost(program, cluster, program.groups[static_cast<std::size_t>(rank.groups[kTensorGroup])]);
    for (const Block& block : of_class.blocks)
      for (const Kernel& kernel : block.kernels) {
        const KernelTime time = kernel_time(kernel, program.precision, chip, ring ? &*ring : nullptr);
        add(costs, {.of_class = of_class.name,
                    .pass = block.name,
                    .kernel = std::string(name_of(kernel.op)) + (kernel.recompute ? " (recompute)" : ""),
                    .chip = chip.name,
                    .count = 1,
                    .flops = kernel.flops,
                    .bytes = static_cast<double>(kernel.bytes),
                    .seconds = time.seconds,
                    .work_s = time.work_s,
                    .memory_s = time.memory_s,
                    .network = kernel.op == KernelOp::all_reduce});
      }
  }
  return costs;
}

nlohmann::ordered_json to_json(const std::vector<KernelCost>& costs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KernelCost& cost : costs)
    list.push_back({{"class", cost.of_class},
                    {"pass", cost.pass},
                    {"kernel", cost.kernel},
                    {"chip", cost.chip},
                    {"count", cost.count},
                    {"seconds", cost.seconds},
                    {"work_s", cost.work_s},
                    {"memory_s", cost.memory_s},
                    {"flops", cost.flops},
                    {"bytes", cost.bytes},
                    {"bound", cost.bound()}});
  return {{"schema", "motley.costs/1"}, {"per", "micro-batch"}, {"kernels", list}};
}

std::string to_text(const std::vector<KernelCost>& costs) {
  std::string text =
      "of one micro-batch, kernels of a kind together; bound: the side of the roofline that holds it\n";
  std::string heading;
  for (const KernelCost& cost : costs) {
    const std::string its = cost.of_class + ", " + cost.pass + ", on " + cost.chip;
    if (its != heading) {
      double sum = 0;
      for (const KernelCost& each : costs)
        if (each.of_class == cost.of_class && each.pass == cost.pass) sum += each.seconds;
      text += fmt::format("\n{}: {}\n", its, format_seconds(sum));
      text += fmt::format("  {:<36} {:>6} {:>10} {:>14} {:>14}  {}\n", "kernel", "count", "time", "FLOP rate",
                          "byte rate", "bound");
      heading = its;
    }
    const double seconds = cost.seconds > 0 ? cost.seconds : 1;
    text +=
        fmt::format("  {:<36} {:>6} {:>10} {:>14} {:>14}  {}\n", cost.kernel, cost.count,
                    format_seconds(cost.seconds), cost.flops > 0 ? format_flops(cost.flops / seconds) : "-",
                    format_rate(cost.bytes / seconds), cost.bound());
  }
  return text;
}

}  // namespace motley
