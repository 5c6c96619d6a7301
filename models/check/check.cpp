// check() proves, in this order: every index is valid; each tensor is made before it is freed, and freed once; peers
// can reach each other; the Program ends; it fits in memory.
#include "models/check/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/base/size.hpp"
#include "models/base/units.hpp"
#include "models/check/memory_extra.hpp"
#include "models/check/memory_kept.hpp"
#include "models/check/memory_text.hpp"
#include "models/check/program_figures.hpp"
#include "models/program/collective.hpp"
#include "models/world/null_world.hpp"

namespace motley {
namespace {

[[noreturn]] void refuse_program(const std::string& what, RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "broken-program", {}, what,
                "a Program that compile() made never does this: was its text edited?", site);
}

// Refuses a rank program; the message begins with its name.
[[noreturn]] void refuse_rank_program(const RankProgram& rank_program, const std::string& what,
                                      RefusalSite site = RefusalSite::here()) {
  refuse_program(fmt::format("{}: {}", rank_program.name, what), site);
}

// Refuses a rank's entry; the message begins with the rank.
[[noreturn]] void refuse_rank(Rank rank, const std::string& what, RefusalSite site = RefusalSite::here()) {
  refuse_program(fmt::format("rank {}: {}", rank, what), site);
}

bool has_all(const RankProgram& rank_program, std::span<const TensorId> tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](TensorId id) { return rank_program.tensors.has(id); });
}

void check_copy(const RankProgram& rank_program, const Copy& copy) {
  if (!has_all(rank_program, copy.into)) refuse_rank_program(rank_program, "copies into no tensor");
  if (copy.tensors.empty() || copy.into.empty()) refuse_rank_program(rank_program, "copies nothing");
  const bool down = rank_program.tensors[copy.into[0]].on_host;
  for (TensorId id : copy.tensors)
    if (rank_program.tensors[id].on_host == down) refuse_rank_program(rank_program, "copies to where it is");
  for (TensorId id : copy.into)
    if (rank_program.tensors[id].on_host != down) refuse_rank_program(rank_program, "copies both ways");
  if (!copy.shard && copy.tensors.size() != copy.into.size())
    refuse_rank_program(rank_program, "copies some tensors into none");
}

void check_compute(const RankProgram& rank_program, const Compute& compute) {
  MOTLEY_CHECK(rank_program.blocks.has(compute.block));  // the text of a Program names its blocks
  const auto kernels = static_cast<int>(rank_program.blocks[compute.block].kernels.size());
  if (compute.first_kernel < 0 || compute.last_kernel > kernels ||
      compute.first_kernel >= compute.last_kernel)
    refuse_rank_program(rank_program, "kernel range outside its block");
}

// Whether `part` is one of `parts` parts (or a row one of so many rows).
bool is_part(std::int32_t part, std::int32_t parts) { return parts >= 1 && part >= 0 && part < parts; }

void check_instruction(const RankProgram& rank_program, const Instruction& instruction) {
  if (instruction.micro_batch < kNoMicroBatch || instruction.micro_batch >= rank_program.micro_batches)
    refuse_rank_program(rank_program, "a micro-batch that is not there");
  if (!has_all(rank_program, instruction.frees)) refuse_rank_program(rank_program, "frees no tensor");
  if (const auto* compute = instruction.as<Compute>()) check_compute(rank_program, *compute);
  for (const After& after : instruction.after)
    if (!rank_program.streams.has(after.stream) || after.index < 0 ||
        at(after.index) >= rank_program.streams[after.stream].instructions.size())
      refuse_rank_program(rank_program, "waits for an instruction that is not there");
  if (!has_all(rank_program, moved_tensors(instruction))) refuse_rank_program(rank_program, "no such tensor");
  const PeerMessage* message = instruction.message();
  const auto* collective = instruction.as<Collective>();
  if ((message != nullptr && (message->parts < 1 || !is_part(message->row, message->rows))) ||
      (collective != nullptr && (collective->parts < 1 || !is_part(collective->row, collective->rows))))
    refuse_rank_program(rank_program, "a part that is not there");
  if (const auto shard = shard_of(instruction); shard && !rank_program.shards.has(*shard))
    refuse_rank_program(rank_program, "no such shard");
  if (const auto* copy = instruction.as<Copy>()) check_copy(rank_program, *copy);
}

void check_kernels(const RankProgram& rank_program) {
  for (const Block& block : rank_program.blocks)
    for (const Kernel& kernel : block.kernels)
      for (const auto* ids : {&kernel.in, &kernel.out, &kernel.parameters, &kernel.frees})
        if (!has_all(rank_program, *ids)) refuse_rank_program(rank_program, "a kernel names no tensor");
}

void check_shards(const RankProgram& rank_program) {
  for (const Shard& shard : rank_program.shards) {
    bool there = has_all(rank_program, shard.parameters) && has_all(rank_program, shard.gradients) &&
                 rank_program.tensors.has(shard.optimizer);
    for (const std::optional<TensorId>& part : {shard.parameter_part, shard.gradient_part})
      there = there && (!part || rank_program.tensors.has(*part));
    if (!there) refuse_rank_program(rank_program, "a shard of no tensor");
    if (!is_part(shard.part, shard.parts))
      refuse_rank_program(rank_program, "a shard of a part that is not there");
    if (rank_program.tensors[shard.optimizer].role != TensorRole::optimizer ||
        rank_program.tensors[shard.optimizer].shape.size() != 2)
      refuse_rank_program(rank_program, "a shard without its optimizer's state");
  }
}

bool has_group(const RankEntry& entry, GroupSlot slot) {
  return entry.groups.has(slot) && entry.groups[slot].has_value();
}

// Refuses part_bytes that are not those of `bytes` among R members.
void check_parts(const Collective& collective, int R) {
  const auto& parts = collective.part_bytes;
  if (parts.size() != at(R) * at(R))
    refuse_program(fmt::format("an all_to_all among {} with {} part_bytes", R, parts.size()));
  for (const std::int64_t part : parts)
    if (part < 0 || part > collective.bytes || collective.bytes > kMostSize / R)
      refuse_program(
          fmt::format("an all_to_all of {} bytes with a part of {} bytes", collective.bytes, part));
  if (const std::int64_t most = payload_of(parts, R); most != collective.bytes)
    refuse_program(fmt::format("an all_to_all of {} bytes whose parts make {}", collective.bytes, most));
  if (collective.expected > 0) refuse_program("an all_to_all with part_bytes and expected bytes");
}

void check_task(const Collective& collective, int R) {
  const std::string_view kind = name_of(collective.kind);
  const bool exchanges = collective.kind == CollectiveKind::all_to_all;
  if (collective.root < 0 || collective.root >= (is_rooted(collective.kind) ? R : 1))
    refuse_program(fmt::format("{} with root {} among {}", kind, collective.root, R));
  if (collective.kind == CollectiveKind::barrier && (collective.bytes != 0 || !collective.tensors.empty()))
    refuse_program("a barrier with a payload");
  if (!exchanges && !collective.part_bytes.empty()) refuse_program(fmt::format("{} with part_bytes", kind));
  if (!collective.part_bytes.empty()) return check_parts(collective, R);
  if (exchanges && (R == 0 || collective.bytes % R != 0))
    refuse_program(fmt::format("an all_to_all of {} bytes among {}: no equal parts", collective.bytes, R));
}

void check_instruction_of_rank(const Program& program, Rank rank, const Instruction& instruction) {
  const RankEntry& entry = program.ranks[rank];
  if (const PeerMessage* message = instruction.message()) {
    if (!entry.peers.has(message->slot) || !entry.peers[message->slot])
      refuse_rank(rank, "a transfer without a peer");
    if (program.program_of(rank).chunks.empty()) refuse_rank(rank, "a transfer of a class without layers");
    if (!other_end(program, rank, message->slot))
      refuse_rank(rank, "a transfer whose peer does not hold the neighbouring virtual stage");
  }
  const auto* collective = instruction.as<Collective>();
  if (collective == nullptr) return;
  if (!has_group(entry, collective->slot)) refuse_rank(rank, "a collective without a group");
  check_task(*collective, static_cast<int>(program.groups[*entry.groups[collective->slot]].ranks.size()));
}

// Instructions of a class that ask unlike things of its ranks, in their order. There are many ranks, and few of these.
std::vector<const Instruction*> unlike_instructions(const RankProgram& rank_program) {
  const auto asked_by = [](const Collective& collective) {
    return std::tuple<GroupSlot, CollectiveKind, std::int32_t, std::int64_t, bool, bool,
                      const std::vector<std::int64_t>&>(collective.slot, collective.kind, collective.root,
                                                        collective.bytes, collective.expected > 0,
                                                        collective.tensors.empty(), collective.part_bytes);
  };
  const auto asks_less = [&](const Collective* a, const Collective* b) {
    return asked_by(*a) < asked_by(*b);
  };
  std::set<const Collective*, decltype(asks_less)> collectives(asks_less);
  std::set<PeerSlot> slots;
  std::vector<const Instruction*> list;
  for (const Stream& stream : rank_program.streams)
    for (const Instruction& instruction : stream.instructions) {
      const PeerMessage* const message = instruction.message();
      const auto* const collective = instruction.as<Collective>();
      if ((message != nullptr && slots.insert(message->slot).second) ||
          (collective != nullptr && collectives.insert(collective).second))
        list.push_back(&instruction);
    }
  return list;
}

// `instructions`: unlike_instructions() of the rank's class.
void check_rank(const Program& program, Rank rank, const std::vector<const Instruction*>& instructions) {
  const RankEntry& entry = program.ranks[rank];
  const RankProgram& rank_program = program.rank_programs[entry.rank_program];
  const std::int64_t parts = rank_program.context_parallel;
  if (entry.context_index < 0 || entry.context_index >= parts)
    refuse_rank(rank, fmt::format("part {} of sequences cut into {}", entry.context_index, parts));
  for (std::optional<Rank> peer : entry.peers)
    if (peer && !program.ranks.has(*peer)) refuse_rank(rank, "a peer that is no rank");
  for (std::optional<GroupId> group : entry.groups)
    if (group && !program.groups.has(*group)) refuse_rank(rank, "a group that is not there");
  for (const Shard& shard : rank_program.shards)
    if (!has_group(entry, shard.slot)) refuse_rank(rank, "a shard that no group holds");
  for (const Instruction* instruction : instructions) check_instruction_of_rank(program, rank, *instruction);
}

// Each rank of a group knows the group, and is in it once.
void check_members(const Program& program) {
  std::vector<std::pair<GroupId, Rank>> members, known;
  for (const GroupId id : program.groups.ids())
    for (const Rank rank : program.groups[id].ranks) members.emplace_back(id, rank);
  for (const Rank rank : program.ranks.ids())
    for (const std::optional<GroupId> id : program.ranks[rank].groups)
      if (id && program.groups.has(*id)) known.emplace_back(*id, rank);  // others are refused of the rank
  std::sort(members.begin(), members.end());
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  if (members != known) refuse_program("a group whose ranks are not those that name it");
}

// Counts, for each tensor of one micro-batch, the writes that allocate it and the instructions that free it. The order
// of streams does not matter.
class LifetimeCounts {
 public:
  explicit LifetimeCounts(const RankProgram& rank_program)
      : rank_program_(rank_program), counts_(rank_program.tensors.size()) {}

  void add(const Instruction& instruction) {
    for (TensorId id : instruction.frees) ++count(id).freed;
    if (makes_received(instruction) || makes_tensors(rank_program_, instruction))
      for (TensorId id : moved_tensors(instruction)) ++count(id).written;
    if (const auto* copy = instruction.as<Copy>())
      for (TensorId id : copy->into)
        if (per_micro_batch(rank_program_.tensors[id].role)) ++count(id).written;
    const auto* compute = instruction.as<Compute>();
    if (compute == nullptr) return;
    const auto& kernels = rank_program_.blocks[compute->block].kernels;
    for (int i = compute->first_kernel; i < compute->last_kernel; ++i) {
      for (TensorId id : kernels[at(i)].frees) ++count(id).freed;
      if (is_collective(kernels[at(i)].op)) continue;
      for (TensorId id : kernels[at(i)].out) ++count(id).written;
    }
  }

  // Refuses the first tensor that is not freed as often as it is written, and forgets what was counted.
  void take_balanced(std::int32_t micro_batch) {
    std::sort(counted_.begin(), counted_.end());
    for (const TensorId id : counted_) {
      const Count seen = std::exchange(counts_[id], {});
      if (seen.written != seen.freed || seen.written > 1)
        refuse_program(fmt::format("{}: tensor `{}` of micro-batch {} is written {} times and freed {} times",
                                   rank_program_.name, rank_program_.tensors[id].name, micro_batch,
                                   seen.written, seen.freed));
    }
    counted_.clear();
  }

 private:
  struct Count {
    int written = 0, freed = 0;
  };
  Count& count(TensorId id) {
    Count& here = counts_[id];
    if (here.written == 0 && here.freed == 0) counted_.push_back(id);
    return here;
  }
  const RankProgram& rank_program_;
  IdTable<TensorId, Count> counts_;
  std::vector<TensorId> counted_;
};

// Looks at one micro-batch after the other: the counts of all of them would take gigabytes.
void check_lifetimes(const RankProgram& rank_program) {
  std::vector<const Instruction*> all;
  for (const Stream& stream : rank_program.streams)
    for (const Instruction& instruction : stream.instructions) all.push_back(&instruction);
  std::stable_sort(all.begin(), all.end(), [](const Instruction* a, const Instruction* b) {
    return a->micro_batch < b->micro_batch;
  });
  LifetimeCounts counts(rank_program);
  for (std::size_t i = 0; i < all.size(); ++i) {
    counts.add(*all[i]);
    if (i + 1 == all.size() || all[i + 1]->micro_batch != all[i]->micro_batch)
      counts.take_balanced(all[i]->micro_batch);
  }
}

void check_reachable(const Program& program, const Cluster& cluster) {
  const auto chip = [&](Rank rank) {
    const int index = program.ranks[rank].chip;
    if (index < 0 || index >= cluster.chip_count())
      throw Refusal(
          Exit::infeasible, "no-such-chip", {},
          fmt::format("rank {} is on chip {}, but cluster `{}` has only {} {}", rank, index, cluster.name,
                      cluster.chip_count(), cluster.chip_count() == 1 ? "chip" : "chips"));
    return index;
  };
  for (Rank rank : program.ranks.ids())
    for (std::optional<Rank> peer : program.ranks[rank].peers)
      if (peer) route(cluster, chip(rank), chip(*peer));
  for (const Group& group : program.groups)
    for (std::size_t i = 0; i < group.ranks.size(); ++i)
      route(cluster, chip(group.ranks[i]), chip(group.ranks[(i + 1) % group.ranks.size()]));
}

bool recomputes(const Program& program) {
  for (const Block& block : program.rank_programs.front().blocks)
    for (const Kernel& kernel : block.kernels)
      if (kernel.recompute) return true;
  return false;
}

void check_host_fits(const StageMemory& stage) {
  if (stage.host_capacity == 0 || stage.host <= stage.host_capacity) return;
  throw Refusal(Exit::infeasible, "out-of-host-memory", {},
                fmt::format("a node of stage {} must hold {} for its chips, but has only {} of memory",
                            stage.stage, format_bytes(static_cast<double>(stage.host)),
                            format_bytes(static_cast<double>(stage.host_capacity))),
                "a smaller share of `offload`, or `zero: 1`, which divides what is offloaded");
}

// Refuses a Program that does not fit. The message describes the fullest stage and counts the others that do not fit.
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

std::vector<Blocked> find_deadlock(const Program& program) {
  IdTable<Rank, RankMemory> memory;
  return run_null(program, memory);
}

void check_indices(const Program& program) {
  check_figures(program);
  for (const RankProgram& rank_program : program.rank_programs) {
    const std::int64_t cut = rank_program.expert_tensor_parallel;
    if (rank_program.tensor_parallel % cut != 0)
      refuse_program(fmt::format("{}: experts cut by {} among {} tensor-parallel ranks", rank_program.name,
                                 cut, rank_program.tensor_parallel));
    const std::int64_t parts = rank_program.context_parallel;
    if (parts > program.sequence || (parts > 1 && program.sequence % (2 * parts) != 0))
      refuse_program(
          fmt::format("{}: sequences of {} cut over {} ranks", rank_program.name, program.sequence, parts));
    if (rank_program.streams.empty() || rank_program.streams[kComputeStream].kind != StreamKind::compute)
      refuse_rank_program(rank_program, "the first stream is not compute");
    check_kernels(rank_program);
    check_shards(rank_program);
    for (const Stream& stream : rank_program.streams)
      for (const Instruction& instruction : stream.instructions) check_instruction(rank_program, instruction);
  }
  for (const Group& group : program.groups)
    for (const Rank rank : group.ranks)
      if (!program.ranks.has(rank)) refuse_program("a group of a rank that is not there");
  check_members(program);
  for (const RankEntry& entry : program.ranks)
    if (!program.rank_programs.has(entry.rank_program)) refuse_program("a rank of no class");
  IdTable<RankProgramId, std::vector<const Instruction*>> asking;
  for (const RankProgram& rank_program : program.rank_programs) asking.add(unlike_instructions(rank_program));
  for (Rank rank : program.ranks.ids()) check_rank(program, rank, asking[program.ranks[rank].rank_program]);
}

std::vector<StageMemory> check(const Program& program, const Cluster& cluster, double fragmentation) {
  check_indices(program);
  for (const RankProgram& rank_program : program.rank_programs) check_lifetimes(rank_program);
  check_reachable(program, cluster);
  IdTable<Rank, RankMemory> memory;
  const auto stuck = run_null(program, memory);
  if (!stuck.empty()) refuse_deadlock(program, stuck);
  for (Rank rank : memory.ids())
    if (memory[rank].live != 0)
      refuse_program(fmt::format("rank {} ends with {} bytes not freed", rank, memory[rank].live));
  auto stages = keeps_otherwise(program, cluster) ? memory_by_stage(program, cluster, fragmentation)
                                                  : by_stage(program, cluster, memory, fragmentation);
  check_fit(program, stages);
  for (const StageMemory& stage : stages) check_host_fits(stage);
  return stages;
}

}  // namespace motley
