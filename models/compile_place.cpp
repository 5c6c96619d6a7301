// Pass "place": ranks in Megatron-LM's order (tensor index fastest, then replica, then stage), rank r on chip r, so
// tensor-parallel peers are neighbours in a node and only pipeline edges span the cluster.
#include <fmt/format.h>

#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

Rank rank_at(const Strategy& strategy, std::int64_t stage, std::int64_t replica, std::int64_t tensor) {
  return static_cast<Rank>((stage * strategy.dp() + replica) * strategy.tp() + tensor);
}

// Adds the group (of two ranks or more) and enters it at `slot` of each member.
void add_group(Program& program, GroupKind kind, int slot, std::vector<Rank> ranks) {
  if (ranks.size() < 2) return;
  for (Rank rank : ranks)
    program.ranks[static_cast<std::size_t>(rank)].groups[static_cast<std::size_t>(slot)] =
        static_cast<std::int32_t>(program.groups.size());
  program.groups.push_back({kind, std::move(ranks)});
}

void add_groups(const Job& job, Program& program) {
  const Strategy& strategy = job.strategy;
  for (int stage = 0; stage < strategy.pp(); ++stage)
    for (int replica = 0; replica < strategy.dp(); ++replica) {
      std::vector<Rank> ranks;
      for (int tensor = 0; tensor < strategy.tp(); ++tensor)
        ranks.push_back(rank_at(strategy, stage, replica, tensor));
      add_group(program, GroupKind::tensor, kTensorGroup, ranks);
    }
  for (int stage = 0; stage < strategy.pp(); ++stage)
    for (int tensor = 0; tensor < strategy.tp(); ++tensor) {
      std::vector<Rank> ranks;
      for (int replica = 0; replica < strategy.dp(); ++replica)
        ranks.push_back(rank_at(strategy, stage, replica, tensor));
      add_group(program, GroupKind::data, kDataGroup, ranks);
    }
  if (!job.transformer.tied_embeddings || strategy.pp() == 1) return;
  for (int replica = 0; replica < strategy.dp(); ++replica)
    for (int tensor = 0; tensor < strategy.tp(); ++tensor)
      add_group(
          program, GroupKind::embedding, kEmbeddingGroup,
          {rank_at(strategy, 0, replica, tensor), rank_at(strategy, strategy.pp() - 1, replica, tensor)});
}

void set_job(const Job& job, Program& program) {
  program.strategy_hash = strategy_hash(job.transformer, job.train, job.strategy);
  program.micro_batch = job.train.micro_batch;
  program.sequence = job.train.sequence;
  program.global_batch = job.train.global_batch;
  program.micro_batches = job.strategy.templates[0].micro_batches;
  program.precision = job.train.precision;
  program.gradients = job.train.gradients;
  program.layers = job.transformer.layers;
  program.p2p_buffers = job.strategy.p2p_buffers;
}

}  // namespace

void place(const Job& job, Program& program) {
  const Strategy& strategy = job.strategy;
  if (strategy.rank_count() > job.cluster.chip_count())
    throw Refusal(
        Exit::infeasible, "too-many-ranks", {},
        fmt::format("the strategy needs {} ranks (tp {} x pp {} x dp {}), cluster `{}` has {} chips",
                    strategy.rank_count(), strategy.tp(), strategy.pp(), strategy.dp(), job.cluster.name,
                    job.cluster.chip_count()),
        fmt::format("largest dp that fits: {}", job.cluster.chip_count() / (strategy.tp() * strategy.pp())));
  set_job(job, program);
  for (int stage = 0; stage < strategy.pp(); ++stage) {
    const Stage& of = strategy.templates[0].stages[static_cast<std::size_t>(stage)];
    ProgramClass stage_class;
    stage_class.name = fmt::format("stage {}", stage);
    stage_class.chunks = {{stage, of.first_layer, of.last_layer}};
    stage_class.first_stage = stage == 0;
    stage_class.last_stage = stage + 1 == strategy.pp();
    program.classes.push_back(stage_class);
    for (int replica = 0; replica < strategy.dp(); ++replica)
      for (int tensor = 0; tensor < strategy.tp(); ++tensor) {
        RankEntry entry{stage, rank_at(strategy, stage, replica, tensor), stage, replica, tensor, {}, {}};
        entry.peers = {stage == 0 ? -1 : rank_at(strategy, stage - 1, replica, tensor),
                       stage_class.last_stage ? -1 : rank_at(strategy, stage + 1, replica, tensor)};
        entry.groups = {-1, -1, -1};
        program.ranks.push_back(entry);
      }
  }
  add_groups(job, program);
}

}  // namespace motley
