// One function for each kind of move, which lists the edits from this job to a neighbour. Edits that change nothing,
// or that the job cannot use, are left out; stages of all templates change together.
#include "models/plan/moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/predicted_order.hpp"
#include "models/plan/planned_recomputes.hpp"
#include "models/plan/replica_edits.hpp"

namespace motley {
namespace {

constexpr int kMostZero = 3;

template <class Holds>
bool any_stage(const Strategy& strategy, const Holds& holds) {
  return std::any_of(strategy.templates.begin(), strategy.templates.end(), [&](const PipelineTemplate& each) {
    return std::any_of(each.stages.begin(), each.stages.end(), holds);
  });
}

bool has_pipelines(const Strategy& strategy) {
  return std::any_of(strategy.templates.begin(), strategy.templates.end(),
                     [](const PipelineTemplate& each) { return each.stages.size() > 1; });
}

bool has_copies(const Strategy& strategy) {
  const PipelineTemplate& first = strategy.templates[0];
  return strategy.templates.size() > 1 ||
         std::any_of(first.stages.begin(), first.stages.end(),
                     [&first](const Stage& stage) { return first.copies_of(stage) > 1; });
}

bool has_one_chunk_a_stage(const Strategy& strategy) {
  return !any_stage(strategy, [](const Stage& stage) { return !stage.more.empty(); });
}

bool is_cut(const Stage& stage) { return stage.tensor_parallel > 1; }

// Whether layers may be spread anew over the chunks of another schedule, because they are spread evenly now.
bool may_spread_layers(const Strategy& strategy) {
  return strategy.templates.size() == 1 && has_even_layers(strategy.templates[0]);
}

Move move_of(const Job& job, MoveKind kind, std::vector<Edit> edits) {
  std::vector<std::string> typed;
  for (const Edit& edit : edits) typed.push_back(to_yaml(edit, job));
  return {kind, std::move(edits), fmt::format("{}", fmt::join(typed, ", "))};
}

// Edits of one kind; each is a move by itself.
using Edits = std::vector<Edit>;

Edits recompute_edits(const Job& job) {
  std::vector<Recompute> list = planned_recomputes(job.transformer);
  list.push_back(Recompute::alternate);
  Edits edits;
  for (const Recompute& each : list)
    if (any_stage(job.strategy, [&](const Stage& stage) {
          return stage.recompute.value_or(job.strategy.recompute) != each || stage.recompute_layers;
        }))
      edits.push_back(SetRecompute{each});
  return edits;
}

// Half and twice the number of a chunk's layers that are recomputed now, if every stage recomputes.
Edits recompute_layers_edits(const Job& job) {
  const Strategy& strategy = job.strategy;
  if (any_stage(strategy, [&](const Stage& stage) {
        return stage.recompute.value_or(strategy.recompute) == Recompute::none;
      }))
    return {};
  std::int64_t longest = 0;
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const VirtualStage& chunk : virtual_stages(pipeline))
      longest = std::max(longest, chunk.layers.last - chunk.layers.first);
  const std::int64_t now = strategy.templates[0].stages[0].recompute_layers.value_or(longest);
  Edits edits;
  for (const std::int64_t layers : {now / 2, now * 2})
    if (layers >= 1 && layers < longest) edits.push_back(SetRecomputeLayers{layers});
  return edits;
}

// Half and twice the bytes of a bucket now: no less than the gradients of a layer, which are in one bucket, and no more
// than those of the model.
Edits bucket_edits(const Job& job) {
  const Strategy& strategy = job.strategy;
  if (!has_copies(strategy) || !(strategy.overlap_gradients || strategy.overlap_parameters)) return {};
  std::int64_t most_cut = 1;
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const Stage& stage : pipeline.stages) most_cut = std::max(most_cut, stage.tensor_parallel);
  const std::int64_t model = parameter_count(job.transformer) * bytes_of(job.train.gradients);
  const std::int64_t layer = model / job.transformer.layers / most_cut, now = strategy.bucket_bytes;
  constexpr std::int64_t kWhole = 8;  // bytes, which whole gradients of any format fill
  Edits edits;
  if (now > layer && now / 2 >= kWhole) edits.push_back(SetBucketBytes{now / 2 / kWhole * kWhole});
  if (now < model) edits.push_back(SetBucketBytes{now * 2});
  return edits;
}

Edits overlap_edits(const Job& job) {
  const Strategy& strategy = job.strategy;
  Edits edits;
  const auto add = [&](OverlapEdit overlap, bool is_on) {
    if (!is_on) edits.push_back(TurnOnOverlap{overlap});
  };
  if (has_copies(strategy)) add(OverlapEdit::gradients, strategy.overlap_gradients);
  if (has_copies(strategy) && (strategy.zero == 1 || strategy.zero == 2))
    add(OverlapEdit::parameters, strategy.overlap_parameters);
  if (has_pipelines(strategy)) add(OverlapEdit::p2p, strategy.overlap_p2p);
  for (Edit& edit : bucket_edits(job)) edits.push_back(std::move(edit));
  return edits;
}

Edits sequence_parallel_edits(const Job& job) {
  if (job.strategy.sequence_parallel || !any_stage(job.strategy, is_cut)) return {};
  return {TurnOnSequenceParallel{}};
}

Edits zero_edits(const Job& job) {
  Edits edits;
  for (int zero = 0; has_copies(job.strategy) && zero <= kMostZero; ++zero)
    if (zero != job.strategy.zero) edits.push_back(SetZero{zero});
  return edits;
}

// ZeRO over the replicas of a node, over half of those now, over twice as many; and when gradients are reduced and
// parameters freed.
Edits sharding_edits(const Job& job) {
  const Strategy& strategy = job.strategy;
  if (strategy.zero == 0 || !has_copies(strategy)) return {};
  const PipelineTemplate& first = strategy.templates[0];
  std::int64_t node = job.cluster.chip_count();
  for (const NodeGroup& group : job.cluster.groups) node = std::min<std::int64_t>(node, group.chips_per_node);
  const std::int64_t now = strategy.shard_over > 0 ? strategy.shard_over : first.replicas;
  Edits edits;
  for (const std::int64_t over : std::set<std::int64_t>{
           node / (first.stages[0].tensor_parallel * first.context_parallel), now / 2, now * 2})
    if (over > 1 && over != now && over <= first.replicas && first.replicas % over == 0)
      edits.push_back(SetShardOver{over});
  if (strategy.zero >= 2)
    edits.push_back(SetReduceGradients{
        strategy.reduce_gradients == ReduceGradients::each ? ReduceGradients::last : ReduceGradients::each});
  if (strategy.zero == 3 && !has_pipelines(strategy))
    edits.push_back(SetReshardAfterForward{!strategy.reshard_after_forward});
  return edits;
}

Edits resharding_edits(const Job& job) {
  if (!has_pipelines(job.strategy) || !any_stage(job.strategy, is_cut)) return {};
  bool gathers = false;
  for (const PipelineTemplate& pipeline : job.strategy.templates)
    for (std::size_t i = 0; i < pipeline.stages.size(); ++i)
      gathers = gathers || (has_stage_before(pipeline, static_cast<int>(i)) &&
                            pipeline.stages[i].resharding == Resharding::gather);
  return {SetResharding{gathers ? Resharding::direct : Resharding::gather}};
}

// Twice and half the micro-batch, and the smallest one, if the micro-batches of every template can be divided so.
Edits micro_batch_edits(const Job& job) {
  const std::int64_t now = common_micro_batch(job);
  if (now == 0) return {};
  Edits edits;
  const auto& templates = job.strategy.templates;
  if (std::all_of(templates.begin(), templates.end(),
                  [](const PipelineTemplate& each) { return each.micro_batches % 2 == 0; }))
    edits.push_back(SetMicroBatch{now * 2});
  if (now % 2 == 0) edits.push_back(SetMicroBatch{now / 2});
  if (now > 2) edits.push_back(SetMicroBatch{1});
  return edits;
}

Edits schedule_edits(const Job& job) {
  const Strategy& strategy = job.strategy;
  if (!has_pipelines(strategy) || strategy.schedule == Schedule::custom) return {};
  const bool keeps_layers = has_one_chunk_a_stage(strategy);
  Edits edits;
  for (const Schedule each :
       {Schedule::one_f_one_b, Schedule::zb_h1, Schedule::zb_h2, Schedule::interleaved, Schedule::zb_v})
    if (each != strategy.schedule &&
        ((keeps_layers && standard_chunks(each) == 1) || may_spread_layers(strategy)))
      edits.push_back(SetSchedule{each});
  if (depends_on_times(strategy.schedule))
    edits.push_back(SetPutOff{strategy.put_off == PutOff::count ? PutOff::memory : PutOff::count});
  return edits;
}

// Twice and half as many chunks in each stage, and one more or fewer.
Edits virtual_stages_edits(const Job& job) {
  const Strategy& strategy = job.strategy;
  if (strategy.schedule != Schedule::interleaved || !may_spread_layers(strategy)) return {};
  const int now = chunk_count(strategy);
  std::set<int> counts = {now * 2, now + 1, now - 1};
  if (now % 2 == 0) counts.insert(now / 2);
  Edits edits;
  for (const int chunks : counts)
    if (chunks > 1 && chunks * strategy.pp() <= job.transformer.layers)
      edits.push_back(SetVirtualStages{chunks});
  return edits;
}

// One or two layers from one stage of the only pipeline to any other.
Edits layers_edits(const Job& job) {
  if (job.strategy.templates.size() > 1 || !has_one_chunk_a_stage(job.strategy)) return {};
  Edits edits;
  const std::vector<Stage>& stages = job.strategy.templates[0].stages;
  const int count = static_cast<int>(stages.size());
  for (int from = 0; from < count; ++from)
    for (int to = 0; to < count; ++to)
      for (const std::int64_t layers : {1, 2})
        if (from != to && stages[at(from)].last_layer - stages[at(from)].first_layer > layers)
          edits.push_back(ShiftLayers{from, to, layers});
  return edits;
}

// A sequence is not cut into parts of fewer tokens. Assumes: shorter parts gain nothing that shorter micro-batches or
// tensor parallelism do not.
constexpr std::int64_t kLeastTokens = 2048;

// Half of one degree and twice another; then 2, 4, ... times as many stages, or as large a tensor-parallel degree,
// with fewer replicas if their number can be divided so, else on chips that are idle now.
Edits degrees_edits(const Job& job) {
  if (!is_laid_out_by_degrees(job.strategy)) return {};
  const std::int64_t tp = job.strategy.tp(), pp = job.strategy.pp(), dp = job.strategy.dp();
  const std::int64_t cp = job.strategy.cp();
  std::vector<SetDegrees> list;
  const auto add = [&](const SetDegrees& degrees) {
    if (std::find(list.begin(), list.end(), degrees) == list.end()) list.push_back(degrees);
  };
  if (tp % 2 == 0) {
    add({tp / 2, pp, dp * 2, cp});
    add({tp / 2, pp * 2, dp, cp});
  }
  if (pp % 2 == 0) {
    add({tp, pp / 2, dp * 2, cp});
    add({tp * 2, pp / 2, dp, cp});
  }
  if (dp % 2 == 0) {
    add({tp * 2, pp, dp / 2, cp});
    add({tp, pp * 2, dp / 2, cp});
  }
  if (cp % 2 == 0) {
    add({tp, pp, dp * 2, cp / 2});
    add({tp * 2, pp, dp, cp / 2});
    add({tp, pp * 2, dp, cp / 2});
  }
  if (job.train.sequence / (cp * 2) >= kLeastTokens) {
    if (dp % 2 == 0) add({tp, pp, dp / 2, cp * 2});
    if (tp % 2 == 0) add({tp / 2, pp, dp, cp * 2});
    if (pp % 2 == 0) add({tp, pp / 2, dp, cp * 2});
  }
  constexpr std::int64_t kMostTimes = 64;
  const std::int64_t places = job.cluster.chip_count() / (tp * pp * cp);
  for (std::int64_t times = 2; times <= kMostTimes; times *= 2) {
    const std::int64_t replicas = dp % times == 0 ? dp / times : dp;
    if (replicas * times > places) continue;
    add({tp, pp * times, replicas, cp});
    add({tp * times, pp, replicas, cp});
  }
  return {list.begin(), list.end()};
}

// Experts weighed elsewhere; over twice and half as many ranks; and uncut, over as many more as they were cut into.
Edits experts_edits(const Job& job) {
  if (job.transformer.experts.count == 0) return {};
  const bool travel = job.strategy.expert_weights == ExpertWeights::activation;
  Edits edits = {SetExpertWeights{travel ? ExpertWeights::combine : ExpertWeights::activation}};
  const Stage& first = job.strategy.templates[0].stages[0];
  if (any_stage(job.strategy, [&](const Stage& stage) {
        return stage.expert_parallel != first.expert_parallel || stage.expert_cut() != first.expert_cut() ||
               stage.tensor_parallel != first.tensor_parallel;
      }))
    return edits;
  const std::int64_t ep = first.expert_parallel, cut = first.expert_cut();
  const std::int64_t ranks = job.strategy.templates[0].copies_of(first) * first.tensor_parallel,
                     experts = job.transformer.experts.count;
  const auto add = [&](std::int64_t parallel, std::int64_t cut_in) {
    if (parallel * cut_in <= ranks && experts % parallel == 0) edits.push_back(SetExperts{parallel, cut_in});
  };
  add(ep * 2, cut);
  if (ep % 2 == 0) add(ep / 2, cut);
  if (cut > 1) {
    add(ep, 1);
    add(ep * cut, 1);
  }
  return edits;
}

// Offload, if all nodes give a memory.
Edits offload_edits(const Job& job) {
  if (!std::all_of(job.cluster.groups.begin(), job.cluster.groups.end(),
                   [](const NodeGroup& group) { return group.host.has_value(); }))
    return {};
  Edits edits;
  for (const Offload& offload : {Offload{1, 0}, Offload{1, 1}})
    if (any_stage(job.strategy, [&](const Stage& stage) {
          return stage.offload.value_or(job.strategy.offload) != offload;
        }))
      edits.push_back(SetOffload{offload});
  return edits;
}

std::vector<Move> single_moves(const Job& job, MoveKind kind, Edits (*list_edits)(const Job&)) {
  std::vector<Move> list;
  for (Edit& edit : list_edits(job)) list.push_back(move_of(job, kind, {std::move(edit)}));
  return list;
}

std::vector<Move> expert_overlap_moves(const Job& job) {
  const Strategy& strategy = job.strategy;
  const bool divided = any_stage(strategy, [](const Stage& stage) { return stage.expert_parallel > 1; });
  if (!divided || strategy.overlap_experts || strategy.schedule == Schedule::custom) return {};
  const TurnOnOverlap overlap{OverlapEdit::experts};
  if (strategy.schedule == Schedule::interleaved || strategy.schedule == Schedule::dualpipe_v ||
      !has_pipelines(strategy))
    return {move_of(job, MoveKind::expert_overlap, {overlap})};
  if (!may_spread_layers(strategy)) return {};
  std::vector<Move> list;
  for (const Schedule each : {Schedule::interleaved, Schedule::dualpipe_v})
    list.push_back(move_of(job, MoveKind::expert_overlap, {SetSchedule{each}, overlap}));
  return list;
}

std::vector<Move> replica_moves(const Job& job) {
  std::vector<Move> list;
  for (std::vector<Edit>& edits : replica_edits(job))
    list.push_back(move_of(job, MoveKind::replicas, std::move(edits)));
  return list;
}

// Edits that save memory with the same degrees: a higher `zero`, sequence parallelism or offload; each of them also
// with full recomputation; and full recomputation alone.
std::vector<Edits> memory_savers(const Job& job) {
  Edits savers = zero_edits(job);
  std::erase_if(savers, [&](const Edit& edit) { return std::get<SetZero>(edit).zero < job.strategy.zero; });
  for (const auto list_edits : {sequence_parallel_edits, offload_edits})
    for (const Edit& edit : list_edits(job)) savers.push_back(edit);
  const Edits recompute = recompute_edits(job);
  const Edit full = SetRecompute{Recompute::full};
  const bool may_recompute = std::find(recompute.begin(), recompute.end(), full) != recompute.end();
  std::vector<Edits> list;
  for (const Edit& edit : savers) {
    list.push_back({edit});
    if (may_recompute) list.push_back({edit, full});
  }
  if (may_recompute) list.push_back({full});
  return list;
}

std::vector<Move> combinations(const Job& job) {
  std::vector<Move> list;
  for (Edits& savers : memory_savers(job))
    if (savers.size() > 1) list.push_back(move_of(job, MoveKind::combination, std::move(savers)));
  for (const Edit& degrees : degrees_edits(job)) {
    const std::optional<Job> laid_out = apply(move_of(job, MoveKind::degrees, {degrees}), job);
    if (!laid_out) continue;
    for (Edits& edits : memory_savers(*laid_out)) {
      edits.insert(edits.begin(), degrees);
      list.push_back(move_of(job, MoveKind::combination, std::move(edits)));
    }
  }
  return list;
}

}  // namespace

std::vector<Move> moves(const Job& job, MoveKind kind) {
  switch (kind) {
    case MoveKind::recompute:
      return single_moves(job, kind, recompute_edits);
    case MoveKind::recompute_layers:
      return single_moves(job, kind, recompute_layers_edits);
    case MoveKind::overlap:
      return single_moves(job, kind, overlap_edits);
    case MoveKind::sequence_parallel:
      return single_moves(job, kind, sequence_parallel_edits);
    case MoveKind::zero:
      return single_moves(job, kind, zero_edits);
    case MoveKind::sharding:
      return single_moves(job, kind, sharding_edits);
    case MoveKind::resharding:
      return single_moves(job, kind, resharding_edits);
    case MoveKind::micro_batch:
      return single_moves(job, kind, micro_batch_edits);
    case MoveKind::schedule:
      return single_moves(job, kind, schedule_edits);
    case MoveKind::virtual_stages:
      return single_moves(job, kind, virtual_stages_edits);
    case MoveKind::expert_overlap:
      return expert_overlap_moves(job);
    case MoveKind::layers:
      return single_moves(job, kind, layers_edits);
    case MoveKind::replicas:
      return replica_moves(job);
    case MoveKind::degrees:
      return single_moves(job, kind, degrees_edits);
    case MoveKind::experts:
      return single_moves(job, kind, experts_edits);
    case MoveKind::offload:
      return single_moves(job, kind, offload_edits);
    case MoveKind::combination:
      return combinations(job);
  }
  return {};
}

std::vector<Move> moves(const Job& job) {
  std::vector<Move> list;
  for (int kind = 0; kind < kMoveKinds; ++kind)
    for (Move& move : moves(job, static_cast<MoveKind>(kind))) list.push_back(std::move(move));
  return list;
}

Job moved(const Job& job, const Move& move) {
  Job neighbour = job;
  for (const Edit& edit : move.edits) apply(edit, neighbour);
  validate(neighbour.transformer, neighbour.train, neighbour.strategy);
  return neighbour;
}

std::optional<Job> apply(const Move& move, const Job& job) {
  try {
    return moved(job, move);
  } catch (const Refusal&) {
    return std::nullopt;
  }
}

}  // namespace motley
