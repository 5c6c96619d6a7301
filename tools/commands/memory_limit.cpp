#include "tools/commands/memory_limit.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

constexpr double kWorthSaying = 2e9;  // bytes

void lower_to(double& limit, const std::filesystem::path& file) {
  std::ifstream in(file);
  double bytes = 0;
  if (in >> bytes && bytes > 0) limit = std::min(limit, bytes);  // "max" is no number
}

std::string what_helps(const MemoryNeed& need, const Job& job) {
  std::string hint;
  if (!job.fidelity.fold.value_or(false))
    hint += "simulate one rank of each class that must behave alike (`fidelity: {fold: true}`); ";
  if (job.fidelity.data_parallel != CollectiveLevel::formula)
    hint += "price collectives by formula (`fidelity: {data_parallel: formula}`); ";
  if (need.instructions > 0) hint += "take fewer micro-batches (a smaller global_batch); ";
  return hint + "or allow more with --memory";
}

}  // namespace

double machine_memory() {
  double limit = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const std::filesystem::path groups = "/sys/fs/cgroup";
  lower_to(limit, groups / "memory.max");
  lower_to(limit, groups / "memory" / "memory.limit_in_bytes");
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    if (!line.starts_with("0::/")) continue;
    std::filesystem::path group = groups;
    for (const auto& part : std::filesystem::path(line.substr(4))) {
      group /= part;
      lower_to(limit, group / "memory.max");
    }
  }
  return limit;
}

void add_memory_limit(const Command& command, std::string& memory) {
  command.option("--memory", memory,
                 "most memory that the simulation may need, for example 8GB; default: what the machine has");
}

Yaml node_of(const std::string& option, const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.where.file = option;
  node.text = text;
  return std::make_shared<const YamlNode>(std::move(node));
}

double allowed_memory(const std::string& memory) {
  return memory.empty() ? machine_memory() : static_cast<double>(to_bytes(node_of("--memory", memory)));
}

void announce_memory(const MemoryNeed& need, const Job& job, double allowed) {
  if (need.bytes > allowed) {
    const std::string what = need.instructions > 0
                                 ? fmt::format("{} ranks run {} instructions", need.ranks, need.instructions)
                                 : fmt::format("{} paths of bytes", need.lanes);
    throw Refusal(Exit::infeasible, "too-little-memory", {},
                  fmt::format("the simulation needs about {} of memory ({}), and may take {}",
                              format_bytes(need.bytes), what, format_bytes(allowed)),
                  what_helps(need, job));
  }
  if (need.instructions > 0 && need.bytes > kWorthSaying)
    fmt::print(stderr, "the simulation needs about {} of memory\n", format_bytes(need.bytes));
}

double announce_real_ranks(const Prepared& prepared, const WorldChoice& choice, double allowed) {
  const std::vector<Rank>& ranks = choice.real_ranks;
  double bytes = 0, largest = 0;
  for (const Rank rank : ranks) {
    const std::int32_t stage = prepared.program.ranks[rank].stage;
    for (const StageMemory& memory : prepared.memory)
      if (memory.stage == stage) {
        const double of_rank = static_cast<double>(memory.parameters + memory.gradients + memory.optimizer) +
                               static_cast<double>(memory.activations_peak);
        bytes += of_rank;
        largest = std::max(largest, of_rank);
      }
  }
  if (choice.warm_up + choice.repeats > 1) bytes += largest;  // what the rank that computes goes back to
  const std::string what =
      fmt::format("the tensors of {} real rank{}", ranks.size(), ranks.size() == 1 ? "" : "s");
  if (bytes > allowed)
    throw Refusal(Exit::infeasible, "too-little-memory", {},
                  fmt::format("{} take {} of memory here, and may take {}", what, format_bytes(bytes),
                              format_bytes(allowed)),
                  "let fewer ranks compute, cut the model in more stages, or allow more with --memory");
  if (bytes > kWorthSaying) fmt::print(stderr, "{} take {} of memory\n", what, format_bytes(bytes));
  return bytes;
}

}  // namespace motley
