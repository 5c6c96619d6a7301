// Pass "place": ranks in Megatron-LM's order (tensor index fastest, then context index, then replica, then stage,
// then template). A stage takes chips of the groups that it names, in order, or the first free ones: rank r stands on
// chip r if no groups are named, so that tensor-parallel peers are neighbours in a node and only pipeline edges span
// the cluster.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile_passes.hpp"
#include "models/compile/gradient_shares.hpp"

namespace motley {
namespace {

// Gives out the chips of a cluster, each once.
class FreeChips {
 public:
  explicit FreeChips(const Cluster& cluster) : cluster_(cluster), taken_(at(cluster.chip_count())) {
    for (const GroupLayout& layout : cluster.layout) next_.push_back(layout.first_chip);
  }

  int take() {
    while (first_ < cluster_.chip_count() && taken_[at(first_)]) ++first_;
    MOTLEY_CHECK(first_ < cluster_.chip_count());  // else the strategy has more ranks, and is refused
    taken_[at(first_)] = true;
    return first_;
  }
  int take(const std::string& name) {
    const std::size_t group = find(name);
    const NodeGroup& nodes = cluster_.groups[group];
    const int end = cluster_.layout[group].first_chip + nodes.nodes * nodes.chips_per_node;
    while (next_[group] < end && taken_[at(next_[group])]) ++next_[group];
    if (next_[group] == end)
      throw Refusal(Exit::infeasible, "too-many-ranks", {},
                    fmt::format("group `{}` of cluster `{}` has {} chips, and the strategy takes more", name,
                                cluster_.name, nodes.nodes * nodes.chips_per_node),
                    "fewer replicas or smaller degrees there, or part of them `on` another group");
    taken_[at(next_[group])] = true;
    return next_[group];
  }

 private:
  std::size_t find(const std::string& name) const {
    std::vector<std::string> known;
    for (std::size_t i = 0; i < cluster_.groups.size(); ++i) {
      if (cluster_.groups[i].name == name) return i;
      known.push_back(cluster_.groups[i].name);
    }
    throw Refusal(Exit::infeasible, "unknown-group", {},
                  fmt::format("`on: {}`: cluster `{}` has no such group", name, cluster_.name),
                  fmt::format("its groups: {}", fmt::join(known, ", ")));
  }

  const Cluster& cluster_;
  std::vector<bool> taken_;
  std::vector<int> next_;
  int first_ = 0;
};

// The id of the next group to be added.
GroupId next_group(const Program& program) { return GroupId(program.groups.size()); }

void add_tensor_groups(Program& program) {
  for (Rank first : program.ranks.ids()) {
    const std::int64_t tp = program.program_of(first).tensor_parallel;
    if (tp == 1 || program.ranks[first].tensor_index > 0) continue;
    Group group{GroupKind::tensor, {}};
    for (std::int64_t index = 0; index < tp; ++index) {
      group.ranks.push_back(first + index);
      program.ranks[first + index].groups[kTensorGroup] = next_group(program);
    }
    program.groups.add(std::move(group));
  }
}

bool holds_experts(const Transformer& transformer, const RankProgram& rank_program) {
  for (const Chunk& chunk : rank_program.chunks)
    for (std::int64_t layer = chunk.first_layer; layer < chunk.last_layer; ++layer)
      if (transformer.has_experts(layer)) return true;
  return false;
}

// Ranks with the same tensor index that have parts of the same sequences are tp ranks apart.
void add_context_groups(Program& program) {
  for (Rank rank : program.ranks.ids()) {
    const RankProgram& rank_program = program.program_of(rank);
    if (rank_program.context_parallel == 1 || program.ranks[rank].context_index > 0) continue;
    Group group{GroupKind::context, {}};
    for (std::int64_t index = 0; index < rank_program.context_parallel; ++index) {
      group.ranks.push_back(rank + index * rank_program.tensor_parallel);
      auto& groups = program.ranks[group.ranks.back()].groups;
      groups.resize(at(context_slot(rank_program)) + 1);
      groups.back() = next_group(program);
    }
    program.groups.add(std::move(group));
  }
}

// The members of a group are in the order of the parts of the experts that they hold.
void add_expert_groups(Program& program) {
  std::map<std::tuple<RankProgramId, std::int64_t, std::int64_t>, std::vector<Rank>> groups;
  for (Rank rank : program.ranks.ids()) {
    const RankEntry& entry = program.ranks[rank];
    const ExpertPlace place = expert_place(program.program_of(rank), entry);
    if (program.program_of(rank).expert_parallel > 1)
      groups[{entry.rank_program, place.copy, place.tensor_index}].push_back(rank);
  }
  for (auto& [where, ranks] : groups) {
    for (const Rank rank : ranks) {
      program.ranks[rank].groups.resize(at(kExpertGroup) + 1);
      program.ranks[rank].groups[kExpertGroup] = next_group(program);
    }
    program.groups.add({GroupKind::expert, std::move(ranks)});
  }
}

void add_tensor_gradient_groups(const Job& job, Program& program) {
  for (GroupId id : program.groups.ids()) {
    Group group = program.groups[id];
    const bool needed = program.program_of(group.ranks[0]).sequence_parallel || job.transformer.lora.used();
    if (group.kind != GroupKind::tensor || !needed) continue;
    group.kind = GroupKind::tensor_gradient;
    for (Rank rank : group.ranks) program.ranks[rank].groups.add(next_group(program));
    program.groups.add(std::move(group));
  }
}

// Adds copies of the tensor groups, which gather boundary tensors on streams of their own: one for each chunk that is
// sent parts.
void add_boundary_groups(const Job& job, Program& program) {
  for (const GroupKind kind : {GroupKind::activation_gather, GroupKind::gradient_gather})
    for (GroupId id : program.groups.ids()) {
      if (program.groups[id].kind != GroupKind::tensor) continue;
      const RankProgram& rank_program = program.program_of(program.groups[id].ranks[0]);
      for (const ChunkId chunk : rank_program.chunks.ids()) {
        if (!gathers(job, rank_program, chunk, kind)) continue;
        Group group = program.groups[id];
        group.kind = kind;
        for (Rank rank : group.ranks) program.ranks[rank].groups.add(next_group(program));
        program.groups.add(std::move(group));
      }
    }
}

void set_job(const Job& job, Program& program) {
  program.strategy_hash = strategy_hash(job.transformer, job.train, job.strategy);
  program.sequence = job.train.sequence;
  program.global_batch = job.train.global_batch;
  program.precision = job.train.precision;
  program.gradients = job.train.gradients;
  program.optimizer = job.train.optimizer;
  program.master_weights = job.train.master_weights;
  program.layers = job.transformer.layers;
  program.p2p_buffers = job.strategy.p2p_buffers;
}

// The ranks of a pipeline, by stage, replica, context index and tensor index.
class PipelineRanks {
 public:
  PipelineRanks(const PipelineTemplate& pipeline, Rank first_rank) : pipeline_(pipeline) {
    for (const Stage& stage : pipeline.stages) {
      first_.push_back(first_rank);
      first_rank = first_rank + pipeline.copies_of(stage) * stage.tensor_parallel;
    }
  }
  // Partner k of a rank in a neighbouring stage. If the neighbour has r times the degree or the replicas, the rank
  // has r partners; if it has the r-th part, r ranks share one. None: the rank has no more than k partners.
  std::optional<Rank> partner(const RankEntry& entry, int stage, int neighbour, std::int64_t k) const {
    const Ends tensors = degrees(stage, neighbour), replicas = replicas_between(stage, neighbour);
    if (k >= tensors.partners() * replicas.partners()) return std::nullopt;
    const std::int64_t replica = replicas.partner(entry.replica, k / tensors.partners());
    const std::int64_t tensor = tensors.partner(entry.tensor_index, k % tensors.partners());
    const std::int64_t copy = replica * pipeline_.context_parallel + entry.context_index;
    return first_[at(neighbour)] + (copy * tensors.theirs + tensor);
  }
  // The most partners of a rank at one boundary of the stage's chunks.
  std::int64_t most_partners(const RankProgram& placed, const std::vector<VirtualStage>& all) const {
    std::int64_t most = 1;
    for (const Chunk& chunk : placed.chunks)
      for (const int neighbour : {chunk.virtual_stage - 1, chunk.virtual_stage + 1})
        if (const std::optional<int> other = stage_beside(all, chunk.virtual_stage, neighbour))
          most = std::max(most, degrees(placed.stage, *other).partners() *
                                    replicas_between(placed.stage, *other).partners());
    return most;
  }

 private:
  // Counts of two stages, one of which divides the other.
  struct Ends {
    std::int64_t mine, theirs;
    std::int64_t partners() const { return std::max<std::int64_t>(theirs / mine, 1); }
    std::int64_t partner(std::int64_t index, std::int64_t k) const {
      return theirs >= mine ? index * partners() + k : index * theirs / mine;
    }
  };
  const Stage& stage_at(int stage) const { return pipeline_.stages[at(stage)]; }
  Ends degrees(int stage, int other) const {
    return {stage_at(stage).tensor_parallel, stage_at(other).tensor_parallel};
  }
  Ends replicas_between(int stage, int other) const {
    return {pipeline_.replicas_of(stage_at(stage)), pipeline_.replicas_of(stage_at(other))};
  }

  const PipelineTemplate& pipeline_;
  std::vector<Rank> first_;
};

IdTable<PeerSlot, std::optional<Rank>> peers_of(const RankProgram& placed,
                                                const std::vector<VirtualStage>& all,
                                                const PipelineRanks& ranks, const RankEntry& entry) {
  IdTable<PeerSlot, std::optional<Rank>> peers;
  for (std::int64_t k = 0; k < ranks.most_partners(placed, all); ++k)
    for (const Chunk& chunk : placed.chunks)
      for (const int neighbour : {chunk.virtual_stage - 1, chunk.virtual_stage + 1}) {
        const std::optional<int> stage = stage_beside(all, chunk.virtual_stage, neighbour);
        peers.add(stage ? ranks.partner(entry, placed.stage, *stage, k) : std::nullopt);
      }
  return peers;
}

// Takes a chip for a replica of the stage: from the group that the stage names for that replica, or any.
int take_chip(FreeChips& chips, const Stage& stage, std::int64_t replica, std::int64_t replicas) {
  if (stage.on.empty()) return chips.take();
  return chips.take(stage.on[at(replica * static_cast<std::int64_t>(stage.on.size()) / replicas)]);
}

// Adds the ranks of the last RankProgram, which is that of the stage. `first_rank` and `first_sequence` are those of
// the template.
void place_stage(const PipelineTemplate& pipeline, const Stage& stage, Rank first_rank, FreeChips& chips,
                 std::int64_t first_sequence, Program& program) {
  const auto rank_program = static_cast<std::int32_t>(program.rank_programs.size()) - 1;
  const RankProgram& placed = program.rank_programs.back();
  const auto all = virtual_stages(pipeline);
  const PipelineRanks ranks(pipeline, first_rank);
  const std::int64_t replicas = pipeline.replicas_of(stage);
  const std::int64_t sequences = placed.sequence_stride > 0 ? 1 : placed.micro_batches;
  for (std::int64_t copy = 0; copy < pipeline.copies_of(stage); ++copy) {
    const std::int64_t replica = copy / pipeline.context_parallel, context = copy % pipeline.context_parallel;
    for (std::int64_t tensor = 0; tensor < stage.tensor_parallel; ++tensor) {
      RankEntry entry;
      entry.rank_program = RankProgramId(rank_program);
      entry.stage = rank_program;
      entry.chip = take_chip(chips, stage, replica, replicas);
      entry.replica = static_cast<std::int32_t>(replica);
      entry.tensor_index = static_cast<std::int32_t>(tensor);
      entry.context_index = static_cast<std::int32_t>(context);
      entry.first_sequence = first_sequence + replica * sequences * placed.micro_batch;
      entry.peers = peers_of(placed, all, ranks, entry);
      entry.groups.resize(at(kEmbeddingGroup) + 1);
      program.ranks.add(entry);
    }
  }
}

// Sets the sequences that a stage's replicas have of each micro-batch. If the stages have different numbers of
// replicas, the sequences of all replicas follow one another, so that a neighbour's sequences lie within this
// replica's or the reverse.
void set_sequences(const Job& job, const PipelineTemplate& pipeline, const Stage& stage,
                   RankProgram& placed) {
  placed.micro_batch = pipeline.micro_batch > 0 ? pipeline.micro_batch : job.train.micro_batch;
  placed.micro_batches = pipeline.micro_batches;
  if (!pipeline.has_unlike_replicas()) return;
  placed.sequence_stride = pipeline.replicas * placed.micro_batch;
  placed.micro_batch = placed.sequence_stride / pipeline.replicas_of(stage);
}

// The RankProgram of a stage with its layers, degrees and sequences, without tensors and kernels.
RankProgram rank_program_of(const Job& job, int pipeline_index, int stage_index) {
  const PipelineTemplate& pipeline = job.strategy.templates[at(pipeline_index)];
  const Stage& stage = pipeline.stages[at(stage_index)];
  const auto all = virtual_stages(pipeline);
  RankProgram placed;
  placed.name = job.strategy.templates.size() == 1
                    ? fmt::format("stage {}", stage_index)
                    : fmt::format("pipeline {} stage {}", pipeline_index, stage_index);
  placed.pipeline = pipeline_index;
  placed.stage = stage_index;
  for (std::size_t v = 0; v < all.size(); ++v)
    if (all[v].stage == stage_index)
      placed.chunks.add({static_cast<int>(v), all[v].layers.first, all[v].layers.last});
  placed.first_stage = all.front().stage == stage_index;
  placed.last_stage = all.back().stage == stage_index;
  placed.tensor_parallel = stage.tensor_parallel;
  placed.sequence_parallel = job.strategy.sequence_parallel && stage.tensor_parallel > 1;
  placed.context_parallel = pipeline.context_parallel;
  const bool has_experts = holds_experts(job.transformer, placed);
  if (has_experts) placed.expert_parallel = stage.expert_parallel;
  placed.expert_tensor_parallel = has_experts ? stage.expert_cut() : stage.tensor_parallel;
  set_sequences(job, pipeline, stage, placed);
  return placed;
}

void refuse_too_many(const Job& job) {
  if (job.strategy.rank_count() <= job.cluster.chip_count()) return;
  const Strategy& strategy = job.strategy;
  const bool one = strategy.templates.size() == 1 && !strategy.templates[0].has_unlike_replicas();
  throw Refusal(Exit::infeasible, "too-many-ranks", {},
                fmt::format("the strategy needs {} ranks{}, cluster `{}` has {} chips", strategy.rank_count(),
                            one ? fmt::format(" ({})", degrees_of(strategy)) : "", job.cluster.name,
                            job.cluster.chip_count()),
                one ? fmt::format("largest dp that fits: {}",
                                  job.cluster.chip_count() * strategy.dp() / strategy.rank_count())
                    : "fewer replicas or smaller degrees");
}

}  // namespace

void place_stages(const Job& job, Program& program) {
  refuse_too_many(job);
  set_job(job, program);
  FreeChips chips(job.cluster);
  std::int64_t first_sequence = 0;
  for (std::size_t t = 0; t < job.strategy.templates.size(); ++t) {
    const PipelineTemplate& pipeline = job.strategy.templates[t];
    const int stages = static_cast<int>(pipeline.stages.size());
    const Rank first_rank(program.ranks.size());
    for (int stage = 0; stage < stages; ++stage) {
      program.rank_programs.add(rank_program_of(job, static_cast<int>(t), stage));
      place_stage(pipeline, pipeline.stages[at(stage)], first_rank, chips, first_sequence, program);
    }
    first_sequence += pipeline.replicas * pipeline.micro_batches *
                      (pipeline.micro_batch > 0 ? pipeline.micro_batch : job.train.micro_batch);
  }
}

void place(const Job& job, Program& program) {
  place_stages(job, program);
  add_tensor_groups(program);
  add_expert_groups(program);
  add_context_groups(program);
  add_gradient_groups(job, program);
  add_boundary_groups(job, program);
  add_tensor_gradient_groups(job, program);
}

}  // namespace motley
