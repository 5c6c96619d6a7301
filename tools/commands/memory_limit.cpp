#include "tools/commands/memory_limit.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "hw/rank/memory.hpp"
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

// Bytes of the tensors that a rank holds at its peak, if the rank is real.
double tensor_bytes(const Prepared& prepared, Rank rank) {
  for (const StageMemory& memory : prepared.memory)
    if (memory.stage == prepared.program.ranks[rank].stage)
      return static_cast<double>(memory.parameters + memory.gradients + memory.optimizer) +
             static_cast<double>(memory.activations_peak);
  return 0;
}

// Bytes of what ranks offload: real ranks hold it in the same memory as all else.
double offloaded_bytes(const Prepared& prepared, const std::vector<Rank>& ranks) {
  const std::vector<int>& node_of_chip = prepared.scenario.job.cluster.chip_node;
  std::set<int> nodes;
  for (const Rank rank : ranks) nodes.insert(node_of_chip.at(prepared.program.ranks[rank].chip));
  std::int64_t most = 0;
  for (const StageMemory& memory : prepared.memory) most = std::max(most, memory.host);
  return static_cast<double>(most) * static_cast<double>(nodes.size());
}

// Bytes that this process alone holds. It has compiled the Program, as each rank will, so a rank holds about as much
// besides its tensors.
double own_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:"))
      return 1024 * std::strtod(line.c_str() + std::strlen("RssAnon:"), nullptr);
  return 0;
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

void add_memory_limit(const Command& command, std::string& memory, const std::string& who) {
  command.option(
      "--memory", memory,
      fmt::format("most memory that {} may need, for example 8GB; default: what the machine has", who));
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
    bytes += tensor_bytes(prepared, rank);
    largest = std::max(largest, tensor_bytes(prepared, rank));
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

std::vector<Rank> all_ranks(const Program& program) {
  std::vector<Rank> ranks;
  for (const Rank rank : program.ranks.ids()) ranks.push_back(rank);
  return ranks;
}

void announce_training(const Prepared& prepared, const std::vector<Rank>& ranks, double allowed) {
  refuse_simulated_only(prepared.scenario.job.transformer);
  for (const RankProgram& rank_program : prepared.program.rank_programs) refuse_host_formats(rank_program);
  double tensors = offloaded_bytes(prepared, ranks);
  for (const Rank rank : ranks) tensors += tensor_bytes(prepared, rank);
  // Assumes: what kernels and messages hold for a moment is not counted; it was 10 to 60 % more in runs of 100 MB to 2
  // GB a rank.
  const double bytes = tensors + own_bytes() * static_cast<double>(ranks.size());
  const std::string who = fmt::format("{} rank{}", ranks.size(), ranks.size() == 1 ? "" : "s");
  if (bytes > allowed)
    throw Refusal(
        Exit::infeasible, "too-little-memory", {},
        tensors > allowed
            ? fmt::format("the tensors of {} take {} of memory here, and may take {}", who,
                          format_bytes(tensors), format_bytes(allowed))
            : fmt::format("{} need at least {} of memory here, {} of it for tensors, and may take {}", who,
                          format_bytes(bytes), format_bytes(tensors), format_bytes(allowed)),
        "train fewer layers or fewer ranks, or allow more with --memory");
  if (bytes > kWorthSaying) fmt::print(stderr, "{} need at least {} of memory\n", who, format_bytes(bytes));
  const unsigned processors = std::thread::hardware_concurrency();
  if (ranks.size() > processors)
    spdlog::warn("{} share {} processor{}: steps take longer than on one for each", who, processors,
                 processors == 1 ? "" : "s");
}

}  // namespace motley
