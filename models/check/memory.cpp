#include "models/check/memory.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/base/size.hpp"
#include "models/check/memory_extra.hpp"
#include "models/check/memory_kept.hpp"
#include "models/check/memory_text.hpp"
#include "models/world/symmetry.hpp"

namespace motley {
namespace {

// Whether the tensor holds the head's logits or their gradient.
bool is_logits(const Tensor& tensor) {
  return tensor.use == TensorUse::logits &&
         (tensor.role == TensorRole::activation || tensor.role == TensorRole::activation_gradient);
}

// How an instruction changes the bytes of live logits: by its end, and at the moment when the bytes of all its
// tensors are at their peak.
struct LogitsUse {
  std::int64_t left = 0, at_peak = 0;
};

LogitsUse logits_use(const RankProgram& rank_program, const Instruction& instruction) {
  LogitsUse use;
  const auto* compute = instruction.as<Compute>();
  if (compute == nullptr) return use;
  std::int64_t live = 0, most = 0;
  const auto& kernels = rank_program.blocks[compute->block].kernels;
  const auto add = [&](TensorId id, std::int64_t sign) {
    const Tensor& tensor = rank_program.tensors[id];
    live += sign * tensor.bytes;
    if (is_logits(tensor)) use.left += sign * tensor.bytes;
  };
  for (int i = compute->first_kernel; i < compute->last_kernel; ++i) {
    const Kernel& kernel = kernels[at(i)];
    if (!is_collective(kernel.op))
      for (TensorId id : kernel.out) add(id, 1);
    if (live > most) {
      most = live;
      use.at_peak = use.left;
    }
    for (TensorId id : kernel.frees) add(id, -1);
  }
  return use;
}

// For each program that has logits: by stream and index.
using LogitsUses = std::map<RankProgramId, IdTable<StreamId, std::vector<LogitsUse>>>;

LogitsUses logits_uses(const Program& program) {
  LogitsUses uses;
  for (RankProgramId id : program.rank_programs.ids()) {
    const RankProgram& rank_program = program.rank_programs[id];
    if (std::none_of(rank_program.tensors.begin(), rank_program.tensors.end(), is_logits)) continue;
    for (const Stream& stream : rank_program.streams) {
      std::vector<LogitsUse> stream_uses;
      for (const Instruction& instruction : stream.instructions)
        stream_uses.push_back(logits_use(rank_program, instruction));
      uses[id].add(std::move(stream_uses));
    }
  }
  return uses;
}

// Bytes of those tensors that are in the host's memory and come and go with a micro-batch.
std::int64_t host_bytes(const RankProgram& rank_program, const std::vector<TensorId>& ids) {
  std::int64_t bytes = 0;
  for (TensorId id : ids) {
    const Tensor& tensor = rank_program.tensors[id];
    if (tensor.on_host && per_micro_batch(tensor.role)) bytes += tensor.bytes;
  }
  return bytes;
}

std::vector<Blocked> run_null(const Program& program, const Arrangement& arrangement,
                              const Symmetry& symmetry, IdTable<Rank, RankMemory>& memory) {
  memory = IdTable<Rank, RankMemory>(program.ranks.size());
  const LogitsUses uses = logits_uses(program);
  const auto logits = [&](const Step& step) {
    const auto program_uses = uses.find(program.ranks[step.rank].rank_program);
    return program_uses == uses.end() ? LogitsUse{} : program_uses->second[step.stream].at(at(step.index));
  };
  NullWorld world(
      program, arrangement, symmetry,
      [&](const Step& step, const Instruction& instruction) {
        RankMemory& held = memory[step.rank];
        if (held.live + instruction.peak > held.peak) {
          held.peak = held.live + instruction.peak;
          held.logits = held.live_logits + logits(step).at_peak;
        }
        held.live += instruction.allocated;
        const auto* copy = instruction.as<Copy>();
        if (copy == nullptr) return;
        held.live_host += host_bytes(program.program_of(step.rank), copy->into);
        held.host = std::max(held.host, held.live_host);
      },
      [&](const Step& step, const Instruction& instruction) {
        RankMemory& held = memory[step.rank];
        held.live -= instruction.freed;
        held.live_logits += logits(step).left;
        if (instruction.op() == Op::copy)
          held.live_host -= host_bytes(program.program_of(step.rank), instruction.frees);
      });
  return world.run();
}

std::int64_t bytes_of_role(const RankProgram& rank_program, TensorRole role) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : rank_program.tensors)
    if (tensor.role == role && !tensor.on_host) bytes += tensor.bytes;
  return bytes;
}

// Most bytes that the ranks of each node offload: states and copies that stay, and activations at their own peaks.
std::map<int, std::int64_t> offloaded_by_node(const Program& program, const Cluster& cluster,
                                              const IdTable<Rank, RankMemory>& memory) {
  IdTable<RankProgramId, std::int64_t> stays;
  for (const RankProgram& rank_program : program.rank_programs) {
    stays.add(0);
    for (const Tensor& tensor : rank_program.tensors)
      if (tensor.on_host && !per_micro_batch(tensor.role)) stays.back() += tensor.bytes;
  }
  std::map<int, std::int64_t> nodes;
  for (Rank rank : program.ranks.ids()) {
    const RankEntry& entry = program.ranks[rank];
    std::int64_t& node = nodes[cluster.chip_node[at(entry.chip)]];
    node = size_sum(node, stays[entry.rank_program] + memory[rank].host);
  }
  return nodes;
}

}  // namespace

// Runs one rank of each class of equal ranks for all of them. A Program that fails runs again with all ranks, to name
// every blocked one.
std::vector<Blocked> run_null(const Program& program, IdTable<Rank, RankMemory>& memory) {
  const Arrangement arrangement = arrange(program);
  const Symmetry symmetry = find_symmetry(program, arrangement);
  try {
    if (run_null(program, arrangement, symmetry, memory).empty()) {
      for (Rank rank : memory.ids()) memory[rank] = memory[symmetry.ranks.stand_in(rank)];
      return {};
    }
  } catch (const Refusal&) {
  }
  return run_null(program, arrangement, no_symmetry(program, arrangement), memory);
}

std::vector<StageMemory> by_stage(const Program& program, const Cluster& cluster,
                                  const IdTable<Rank, RankMemory>& memory, double fragmentation) {
  std::map<int, StageMemory> stages;
  const IdTable<Rank, std::int64_t> buffers = communication_buffers(program, cluster);
  const std::map<int, std::int64_t> offloaded = offloaded_by_node(program, cluster, memory);
  for (Rank rank : program.ranks.ids()) {
    const RankEntry& entry = program.ranks[rank];
    const auto [stage_entry, fresh] = stages.try_emplace(entry.stage);
    StageMemory& stage = stage_entry->second;
    const auto capacity = static_cast<std::int64_t>(cluster.chip_of(entry.chip).memory_bytes.value);
    stage.capacity = fresh ? capacity : std::min(stage.capacity, capacity);
    if (fresh || memory[rank].peak > stage.activations_peak) stage.logits = memory[rank].logits;
    stage.activations_peak = std::max(stage.activations_peak, memory[rank].peak);
    const Chip& chip = cluster.chip_of(entry.chip);
    const NodeGroup& nodes = cluster.groups[at(cluster.chip_group[at(entry.chip)])];
    const auto room = nodes.host ? static_cast<std::int64_t>(nodes.host->memory) : 0;
    stage.host_capacity = fresh ? room : std::min(stage.host_capacity, room);
    stage.host = std::max(stage.host, offloaded.at(cluster.chip_node[at(entry.chip)]));
    stage.buffers = std::max(stage.buffers, buffers[rank]);
    stage.runtime = std::max(stage.runtime, reserved_by_runtime(chip));
    stage.fragmentation =
        std::max(stage.fragmentation, lost_to_fragmentation(chip, memory[rank].peak, fragmentation));
    if (!fresh) continue;
    const RankProgram& rank_program = program.program_of(rank);
    if (chip.kind != "cpu") stage.buckets = copied_buckets(rank_program);
    stage.stage = entry.stage;
    stage.parameters = bytes_of_role(rank_program, TensorRole::parameter);
    stage.gradients = bytes_of_role(rank_program, TensorRole::gradient);
    stage.optimizer = bytes_of_role(rank_program, TensorRole::optimizer);
  }
  std::vector<StageMemory> result;
  for (auto& [index, stage] : stages) {
    stage.peak =
        stage.parameters + stage.gradients + stage.optimizer + stage.activations_peak + beyond_tensors(stage);
    result.push_back(stage);
  }
  return result;
}

namespace {

std::vector<StageMemory> counted(const Program& program, const Cluster& cluster, double fragmentation) {
  IdTable<Rank, RankMemory> memory;
  run_null(program, memory);
  return by_stage(program, cluster, memory, fragmentation);
}

}  // namespace

// Assumes: communication buffers belong to the library, so no allocator counts them; copies of buckets are tensors.
std::int64_t peak_of(const StageMemory& stage, Counted counted) {
  switch (counted) {
    case Counted::device:
      break;
    case Counted::reserved:
      return stage.peak - stage.buffers - stage.runtime;
    case Counted::allocated:
      return stage.peak - stage.buffers - stage.runtime - stage.fragmentation;
  }
  return stage.peak;
}

std::vector<StageMemory> memory_by_stage(const Program& program, const Cluster& cluster,
                                         double fragmentation) {
  if (keeps_otherwise(program, cluster)) return counted(as_kept(program, cluster), cluster, fragmentation);
  return counted(program, cluster, fragmentation);
}

}  // namespace motley
