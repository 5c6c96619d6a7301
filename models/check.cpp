// What check() proves, in this order: every index means something; no tensor is freed twice, never, or before it is
// there; peers can reach each other; the Program ends; it fits in memory.
#include "models/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "models/memory_extra.hpp"
#include "models/memory_kept.hpp"
#include "models/memory_text.hpp"
#include "models/null_world.hpp"
#include "models/refusal.hpp"
#include "models/units.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

[[noreturn]] void refuse_program(const std::string& what) {
  throw Refusal(Exit::usage, "broken-program", {}, what,
                "a Program that compile() made never does this: was its text edited?");
}

template <typename List>
bool has(const List& list, std::int64_t index) {
  return index >= 0 && index < static_cast<std::int64_t>(list.size());
}

void check_copy(const ProgramClass& of_class, const Instruction& instruction) {
  for (int id : instruction.into)
    if (!has(of_class.tensors, id)) refuse_program(of_class.name + ": copies into no tensor");
  if (instruction.tensors.empty() || instruction.into.empty())
    refuse_program(of_class.name + ": copies nothing");
  const bool down = goes_to_host(of_class, instruction);
  for (int id : instruction.tensors)
    if (of_class.tensors[at(id)].on_host == down) refuse_program(of_class.name + ": copies to where it is");
  for (int id : instruction.into)
    if (of_class.tensors[at(id)].on_host != down) refuse_program(of_class.name + ": copies both ways");
  if (instruction.shard < 0 && instruction.tensors.size() != instruction.into.size())
    refuse_program(of_class.name + ": copies some tensors into none");
}

void check_instruction(const ProgramClass& of_class, const Instruction& instruction) {
  if (instruction.micro_batch < -1 || instruction.micro_batch >= of_class.micro_batches)
    refuse_program(of_class.name + ": a micro-batch that is not there");
  for (int id : instruction.frees)
    if (!has(of_class.tensors, id)) refuse_program(of_class.name + ": frees no tensor");
  if (instruction.op == Op::compute) {
    if (!has(of_class.blocks, instruction.block)) refuse_program(of_class.name + ": no such block");
    const auto kernels = static_cast<int>(of_class.blocks[at(instruction.block)].kernels.size());
    if (instruction.first_kernel < 0 || instruction.last_kernel > kernels ||
        instruction.first_kernel >= instruction.last_kernel)
      refuse_program(of_class.name + ": kernel range outside its block");
  }
  for (const After& after : instruction.after)
    if (!has(of_class.streams, after.stream) ||
        !has(of_class.streams[at(after.stream)].instructions, after.index))
      refuse_program(of_class.name + ": waits for an instruction that is not there");
  for (int id : instruction.tensors)
    if (!has(of_class.tensors, id)) refuse_program(of_class.name + ": no such tensor");
  if (instruction.parts < 1 || instruction.rows < 1 || instruction.row < 0 ||
      instruction.row >= instruction.rows)
    refuse_program(of_class.name + ": a part that is not there");
  if (instruction.shard != -1 && !has(of_class.shards, instruction.shard))
    refuse_program(of_class.name + ": no such shard");
  if (instruction.op == Op::copy) check_copy(of_class, instruction);
}

void check_kernels(const ProgramClass& of_class) {
  for (const Block& block : of_class.blocks)
    for (const Kernel& kernel : block.kernels)
      for (const auto* ids : {&kernel.in, &kernel.out, &kernel.parameters, &kernel.frees})
        for (int id : *ids)
          if (!has(of_class.tensors, id)) refuse_program(of_class.name + ": a kernel names no tensor");
}

void check_shards(const ProgramClass& of_class) {
  for (const Shard& shard : of_class.shards) {
    for (const auto* ids : {&shard.parameters, &shard.gradients})
      for (int id : *ids)
        if (!has(of_class.tensors, id)) refuse_program(of_class.name + ": a shard of no tensor");
    for (int id : {shard.optimizer, shard.parameter_part, shard.gradient_part})
      if (id != -1 && !has(of_class.tensors, id)) refuse_program(of_class.name + ": a shard of no tensor");
    if (shard.parts < 1 || shard.part < 0 || shard.part >= shard.parts)
      refuse_program(of_class.name + ": a shard of a part that is not there");
    if (shard.optimizer < 0 || of_class.tensors[at(shard.optimizer)].shape.size() != 2)
      refuse_program(of_class.name + ": a shard without its optimizer's state");
  }
}

void check_rank(const Program& program, Rank rank) {
  const RankEntry& entry = program.ranks[at(rank)];
  const std::int64_t parts = program.classes[at(entry.of_class)].context_parallel;
  if (entry.context_index < 0 || entry.context_index >= parts)
    refuse_program(fmt::format("part {} of sequences cut into {}", entry.context_index, parts));
  for (Rank peer : entry.peers)
    if (peer != -1 && !has(program.ranks, peer)) refuse_program("a peer that is no rank");
  for (int group : entry.groups)
    if (group != -1 && !has(program.groups, group)) refuse_program("a group that is not there");
  for (const Shard& shard : program.classes[at(entry.of_class)].shards)
    if (!has(entry.groups, shard.slot) || entry.groups[at(shard.slot)] < 0)
      refuse_program("a shard that no group holds");
  for (const Stream& stream : program.classes[at(entry.of_class)].streams)
    for (const Instruction& instruction : stream.instructions) {
      const bool moves = instruction.op == Op::send || instruction.op == Op::recv;
      if (moves && (!has(entry.peers, instruction.slot) || entry.peers[at(instruction.slot)] < 0))
        refuse_program("a transfer without a peer");
      if (moves && other_end(program, rank, instruction.slot) < 0)
        refuse_program("a transfer whose peer does not hold the neighbouring virtual stage");
      if (instruction.op == Op::collective &&
          (!has(entry.groups, instruction.slot) || entry.groups[at(instruction.slot)] < 0))
        refuse_program("a collective without a group");
      if (instruction.op == Op::collective && instruction.collective == CollectiveKind::all_to_all) {
        const auto& members = program.groups[at(entry.groups[at(instruction.slot)])].ranks;
        if (members.empty() || instruction.bytes % static_cast<std::int64_t>(members.size()) != 0)
          refuse_program(fmt::format("an all_to_all of {} bytes among {}: no equal parts", instruction.bytes,
                                     members.size()));
      }
    }
}

void check_indices(const Program& program) {
  for (const ProgramClass& of_class : program.classes) {
    if (of_class.micro_batches < 1 || of_class.micro_batches > 1'000'000)
      refuse_program(fmt::format("{} micro-batches", of_class.micro_batches));
    const std::int64_t cut = of_class.expert_tensor_parallel;
    if (of_class.expert_parallel < 1 || cut < 1 || of_class.tensor_parallel % cut != 0)
      refuse_program(fmt::format("{}: experts divided by {} and cut by {}", of_class.name,
                                 of_class.expert_parallel, cut));
    const std::int64_t parts = of_class.context_parallel;
    if (parts < 1 || parts > program.sequence || (parts > 1 && program.sequence % (2 * parts) != 0))
      refuse_program(
          fmt::format("{}: sequences of {} cut over {} ranks", of_class.name, program.sequence, parts));
    if (of_class.streams.empty() || of_class.streams[0].kind != StreamKind::compute)
      refuse_program(of_class.name + ": the first stream is not compute");
    check_kernels(of_class);
    check_shards(of_class);
    for (const Stream& stream : of_class.streams)
      for (const Instruction& instruction : stream.instructions) check_instruction(of_class, instruction);
  }
  for (Rank rank = 0; rank < program.rank_count(); ++rank)
    if (!has(program.classes, program.ranks[at(rank)].of_class)) refuse_program("a rank of no class");
  for (Rank rank = 0; rank < program.rank_count(); ++rank) check_rank(program, rank);
}

// Counts, per micro-batch instance, writes that allocate and ends that free; any order of streams.
void check_lifetimes(const ProgramClass& of_class) {
  struct Count {
    int written = 0, freed = 0;
  };
  const std::size_t tensors = of_class.tensors.size();
  std::vector<Count> counts(tensors * at(of_class.micro_batches + 1));  // by micro-batch (-1 first), tensor
  for (const Stream& stream : of_class.streams)
    for (const Instruction& instruction : stream.instructions) {
      Count* const of = counts.data() + at(instruction.micro_batch + 1) * tensors;
      for (int id : instruction.frees) ++of[id].freed;
      if (makes_received(instruction) || makes_tensors(of_class, instruction))
        for (int id : instruction.tensors) ++of[id].written;
      for (int id : instruction.into)
        if (per_micro_batch(of_class.tensors[at(id)].role)) ++of[id].written;
      if (instruction.op != Op::compute) continue;
      const auto& kernels = of_class.blocks[at(instruction.block)].kernels;
      for (int i = instruction.first_kernel; i < instruction.last_kernel; ++i) {
        for (int id : kernels[at(i)].frees) ++of[id].freed;
        if (is_collective(kernels[at(i)].op)) continue;
        for (int id : kernels[at(i)].out) ++of[id].written;
      }
    }
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i].written != counts[i].freed || counts[i].written > 1)
      refuse_program(fmt::format("{}: tensor `{}` of micro-batch {} is written {} times and freed {} times",
                                 of_class.name, of_class.tensors[i % tensors].name,
                                 static_cast<std::int64_t>(i / tensors) - 1, counts[i].written,
                                 counts[i].freed));
}

void check_reachable(const Program& program, const Cluster& cluster) {
  const auto chip = [&](Rank rank) {
    const int index = program.ranks[at(rank)].chip;
    if (index < 0 || index >= cluster.chip_count())
      throw Refusal(Exit::infeasible, "no-such-chip", {},
                    fmt::format("rank {} stands on chip {}, cluster `{}` has {}", rank, index, cluster.name,
                                cluster.chip_count()));
    return index;
  };
  for (Rank rank = 0; rank < program.rank_count(); ++rank)
    for (Rank peer : program.ranks[at(rank)].peers)
      if (peer >= 0) route(cluster, chip(rank), chip(peer));
  for (const Group& group : program.groups)
    for (std::size_t i = 0; i < group.ranks.size(); ++i)
      route(cluster, chip(group.ranks[i]), chip(group.ranks[(i + 1) % group.ranks.size()]));
}

// Logits and their gradient, of the head.
bool is_logits(const Tensor& tensor) {
  return tensor.role == TensorRole::activation_gradient
             ? tensor.name.find("head.logits") != std::string::npos
             : tensor.role == TensorRole::activation && tensor.name == "head.logits";
}

// What an instruction does to the bytes of logits: those it leaves more (or less) live, and those it adds to what was
// live at the moment when it holds most in all.
struct LogitsUse {
  std::int64_t left = 0, at_peak = 0;
};

LogitsUse logits_use(const ProgramClass& of_class, const Instruction& instruction) {
  LogitsUse use;
  if (instruction.op != Op::compute) return use;
  std::int64_t live = 0, most = 0;
  const auto& kernels = of_class.blocks[at(instruction.block)].kernels;
  const auto add = [&](int id, std::int64_t sign) {
    const Tensor& tensor = of_class.tensors[at(id)];
    live += sign * tensor.bytes;
    if (is_logits(tensor)) use.left += sign * tensor.bytes;
  };
  for (int i = instruction.first_kernel; i < instruction.last_kernel; ++i) {
    const Kernel& kernel = kernels[at(i)];
    if (!is_collective(kernel.op))
      for (int id : kernel.out) add(id, 1);
    if (live > most) {
      most = live;
      use.at_peak = use.left;
    }
    for (int id : kernel.frees) add(id, -1);
  }
  return use;
}

// By class that has any: by stream and index.
using LogitsUses = std::map<std::int32_t, std::map<std::pair<int, int>, LogitsUse>>;

LogitsUses logits_uses(const Program& program) {
  LogitsUses uses;
  for (std::size_t c = 0; c < program.classes.size(); ++c) {
    const ProgramClass& of_class = program.classes[c];
    if (std::none_of(of_class.tensors.begin(), of_class.tensors.end(), is_logits)) continue;
    auto& of = uses[static_cast<std::int32_t>(c)];
    for (std::size_t s = 0; s < of_class.streams.size(); ++s)
      for (std::size_t i = 0; i < of_class.streams[s].instructions.size(); ++i)
        of[{static_cast<int>(s), static_cast<int>(i)}] =
            logits_use(of_class, of_class.streams[s].instructions[i]);
  }
  return uses;
}

struct RankMemory {
  std::int64_t live = 0, peak = 0;
  std::int64_t live_logits = 0, logits = 0;  // of the peak
  std::int64_t live_host = 0, host = 0;      // offloaded activations, and the most there ever were
};

// Of what comes and goes.
std::int64_t host_bytes(const ProgramClass& of_class, const std::vector<std::int32_t>& ids) {
  std::int64_t bytes = 0;
  for (int id : ids) {
    const Tensor& tensor = of_class.tensors[at(id)];
    if (tensor.on_host && per_micro_batch(tensor.role)) bytes += tensor.bytes;
  }
  return bytes;
}

std::vector<Blocked> run_null(const Program& program, const Arrangement& arrangement,
                              const Symmetry& symmetry, std::vector<RankMemory>& memory) {
  memory.assign(program.ranks.size(), {});
  const LogitsUses uses = logits_uses(program);
  const auto logits = [&](const Step& step) {
    const auto of = uses.find(program.ranks[at(step.rank)].of_class);
    return of == uses.end() ? LogitsUse{} : of->second.at({step.stream, step.index});
  };
  NullWorld world(
      program, arrangement, symmetry,
      [&](const Step& step, const Instruction& instruction) {
        RankMemory& of_rank = memory[at(step.rank)];
        if (of_rank.live + instruction.peak > of_rank.peak) {
          of_rank.peak = of_rank.live + instruction.peak;
          of_rank.logits = of_rank.live_logits + logits(step).at_peak;
        }
        of_rank.live += instruction.allocated;
        if (instruction.op != Op::copy) return;
        of_rank.live_host += host_bytes(program.class_of(step.rank), instruction.into);
        of_rank.host = std::max(of_rank.host, of_rank.live_host);
      },
      [&](const Step& step, const Instruction& instruction) {
        RankMemory& of_rank = memory[at(step.rank)];
        of_rank.live -= instruction.freed;
        of_rank.live_logits += logits(step).left;
        if (instruction.op == Op::copy)
          of_rank.live_host -= host_bytes(program.class_of(step.rank), instruction.frees);
      });
  return world.run();
}

// One of each class of alike ranks stands for all; a Program that fails runs again whole, to name everyone.
std::vector<Blocked> run_null(const Program& program, std::vector<RankMemory>& memory) {
  const Arrangement arrangement = arrange(program);
  const Symmetry symmetry = find_symmetry(program, arrangement);
  try {
    if (run_null(program, arrangement, symmetry, memory).empty()) {
      for (std::size_t rank = 0; rank < memory.size(); ++rank)
        memory[rank] = memory[at(symmetry.ranks.stand_in(static_cast<std::int64_t>(rank)))];
      return {};
    }
  } catch (const Refusal&) {
  }
  return run_null(program, arrangement, no_symmetry(program, arrangement), memory);
}

std::int64_t bytes_of_role(const ProgramClass& of_class, TensorRole role) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : of_class.tensors)
    if (tensor.role == role && !tensor.on_host) bytes += tensor.bytes;
  return bytes;
}

// Of every node, what its ranks offload at most: states and copies that stay, activations at their own peaks.
std::map<int, std::int64_t> offloaded_by_node(const Program& program, const Cluster& cluster,
                                              const std::vector<RankMemory>& memory) {
  std::vector<std::int64_t> stays;  // by class
  for (const ProgramClass& of_class : program.classes) {
    stays.push_back(0);
    for (const Tensor& tensor : of_class.tensors)
      if (tensor.on_host && !per_micro_batch(tensor.role)) stays.back() += tensor.bytes;
  }
  std::map<int, std::int64_t> nodes;
  for (Rank rank = 0; rank < program.rank_count(); ++rank) {
    const RankEntry& entry = program.ranks[at(rank)];
    nodes[cluster.chip_node[at(entry.chip)]] += stays[at(entry.of_class)] + memory[at(rank)].host;
  }
  return nodes;
}

std::vector<StageMemory> by_stage(const Program& program, const Cluster& cluster,
                                  const std::vector<RankMemory>& memory, double fragmentation) {
  std::map<int, StageMemory> stages;
  const std::vector<std::int64_t> buffers = communication_buffers(program, cluster);
  const std::map<int, std::int64_t> offloaded = offloaded_by_node(program, cluster, memory);
  for (Rank rank = 0; rank < program.rank_count(); ++rank) {
    const RankEntry& entry = program.ranks[at(rank)];
    const auto [found, fresh] = stages.try_emplace(entry.stage);
    StageMemory& stage = found->second;
    const auto capacity = static_cast<std::int64_t>(cluster.chip_of(entry.chip).memory_bytes.value);
    stage.capacity = fresh ? capacity : std::min(stage.capacity, capacity);
    if (fresh || memory[at(rank)].peak > stage.activations_peak) stage.logits = memory[at(rank)].logits;
    stage.activations_peak = std::max(stage.activations_peak, memory[at(rank)].peak);
    const Chip& chip = cluster.chip_of(entry.chip);
    const NodeGroup& nodes = cluster.groups[at(cluster.chip_group[at(entry.chip)])];
    const auto room = nodes.host ? static_cast<std::int64_t>(nodes.host->memory) : 0;
    stage.host_capacity = fresh ? room : std::min(stage.host_capacity, room);
    stage.host = std::max(stage.host, offloaded.at(cluster.chip_node[at(entry.chip)]));
    stage.buffers = std::max(stage.buffers, buffers[at(rank)]);
    stage.runtime = std::max(stage.runtime, reserved_by_runtime(chip));
    stage.fragmentation =
        std::max(stage.fragmentation, lost_to_fragmentation(chip, memory[at(rank)].peak, fragmentation));
    if (!fresh) continue;
    const ProgramClass& of_class = program.class_of(rank);
    if (chip.kind != "cpu") stage.buckets = copied_buckets(of_class);
    stage.stage = entry.stage;
    stage.parameters = bytes_of_role(of_class, TensorRole::parameter);
    stage.gradients = bytes_of_role(of_class, TensorRole::gradient);
    stage.optimizer = bytes_of_role(of_class, TensorRole::optimizer);
  }
  std::vector<StageMemory> result;
  for (auto& [index, stage] : stages) {
    stage.peak =
        stage.parameters + stage.gradients + stage.optimizer + stage.activations_peak + beyond_tensors(stage);
    result.push_back(stage);
  }
  return result;
}

bool recomputes(const Program& program) {
  for (const Block& block : program.classes[0].blocks)
    for (const Kernel& kernel : block.kernels)
      if (kernel.recompute) return true;
  return false;
}

void check_host_fits(const StageMemory& stage) {
  if (stage.host_capacity == 0 || stage.host <= stage.host_capacity) return;
  throw Refusal(Exit::infeasible, "out-of-host-memory", {},
                fmt::format("a node of stage {} is to keep {} for its chips, its memory is {}", stage.stage,
                            format_bytes(static_cast<double>(stage.host)),
                            format_bytes(static_cast<double>(stage.host_capacity))),
                "a smaller share of `offload`, or `zero: 1`, which divides what is offloaded");
}

// Speaks of the fullest stage, and of how many more do not fit.
void check_fit(const Program& program, const std::vector<StageMemory>& stages) {
  const auto fullness = [](const StageMemory& stage) {
    return static_cast<double>(stage.peak) / static_cast<double>(std::max<std::int64_t>(stage.capacity, 1));
  };
  const auto too_full = std::count_if(stages.begin(), stages.end(),
                                      [](const StageMemory& stage) { return stage.peak > stage.capacity; });
  if (too_full == 0) return;
  const StageMemory& stage = *std::max_element(
      stages.begin(), stages.end(),
      [&](const StageMemory& a, const StageMemory& b) { return fullness(a) < fullness(b); });
  const std::string others =
      too_full == 1 ? "" : fmt::format("; {} of {} stages do not fit", too_full, stages.size());
  const std::int64_t state = stage.parameters + stage.gradients + stage.optimizer;
  std::string hint;
  if (state > stage.capacity)
    hint = "the model's state alone does not fit: raise tensor_parallel or pipeline_parallel";
  else if (!recomputes(program))
    hint = "recompute: full keeps only each layer's input";
  else
    hint = "a smaller micro_batch, or more tensor_parallel or pipeline_parallel";
  throw Refusal(Exit::infeasible, "out-of-memory", {},
                fmt::format("stage {} needs {}, its chip has {}: {} too much ({}){}", stage.stage,
                            format_bytes(static_cast<double>(stage.peak)),
                            format_bytes(static_cast<double>(stage.capacity)),
                            format_bytes(static_cast<double>(stage.peak - stage.capacity)),
                            describe_memory(stage), others),
                hint);
}

std::vector<StageMemory> counted(const Program& program, const Cluster& cluster, double fragmentation) {
  std::vector<RankMemory> memory;
  run_null(program, memory);
  return by_stage(program, cluster, memory, fragmentation);
}

[[noreturn]] void refuse_deadlock(const Program& program, const std::vector<Blocked>& stuck) {
  constexpr std::size_t kShown = 8;
  std::string list;
  for (std::size_t i = 0; i < std::min(stuck.size(), kShown); ++i)
    list += fmt::format("\n  {} {}", describe(program, stuck[i].rank, stuck[i].stream, stuck[i].index),
                        stuck[i].why);
  if (stuck.size() > kShown) list += fmt::format("\n  and {} more", stuck.size() - kShown);
  throw Refusal(Exit::failed, "deadlock", {},
                fmt::format("the program never ends: {} streams wait for each other{}", stuck.size(), list));
}

}  // namespace

// Assumes: communication buffers are the library's own, copies of buckets are tensors.
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

std::vector<Blocked> find_deadlock(const Program& program) {
  std::vector<RankMemory> memory;
  return run_null(program, memory);
}

std::vector<StageMemory> memory_by_stage(const Program& program, const Cluster& cluster,
                                         double fragmentation) {
  if (keeps_otherwise(cluster)) return counted(as_kept(program, cluster), cluster, fragmentation);
  return counted(program, cluster, fragmentation);
}

std::vector<StageMemory> check(const Program& program, const Cluster& cluster, double fragmentation) {
  check_indices(program);
  for (const ProgramClass& of_class : program.classes) check_lifetimes(of_class);
  check_reachable(program, cluster);
  std::vector<RankMemory> memory;
  const auto stuck = run_null(program, memory);
  if (!stuck.empty()) refuse_deadlock(program, stuck);
  for (std::size_t rank = 0; rank < memory.size(); ++rank)
    if (memory[rank].live != 0)
      refuse_program(fmt::format("rank {} ends with {} bytes not freed", rank, memory[rank].live));
  auto stages = keeps_otherwise(cluster) ? memory_by_stage(program, cluster, fragmentation)
                                         : by_stage(program, cluster, memory, fragmentation);
  check_fit(program, stages);
  for (const StageMemory& stage : stages) check_host_fits(stage);
  return stages;
}

}  // namespace motley
