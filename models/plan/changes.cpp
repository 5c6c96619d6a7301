// The kinds of moves in the order in which they are tried, and the moves of a kind that are near enough: those
// further off are left to a search.
#include "models/plan/changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "models/base/index.hpp"

namespace motley {
namespace {

// Difference of the stages' waiting, as a share of the step, from which layers are moved.
constexpr double kUneven = 0.01;

constexpr std::array kTried = {MoveKind::recompute,      MoveKind::overlap,  MoveKind::sequence_parallel,
                               MoveKind::zero,           MoveKind::sharding, MoveKind::resharding,
                               MoveKind::micro_batch,    MoveKind::schedule, MoveKind::virtual_stages,
                               MoveKind::expert_overlap, MoveKind::layers,   MoveKind::replicas,
                               MoveKind::degrees,        MoveKind::experts};

struct Stages {
  int waits_least = 0, waits_most = 0;
};

// The stages that wait least and most. Nothing: they wait alike, or the report's rows are not the stages of one
// pipeline.
std::optional<Stages> uneven_stages(const Job& job, const Report& report) {
  const auto& rows = report.breakdown;
  if (rows.empty() || rows.size() != job.strategy.templates[0].stages.size()) return std::nullopt;
  const auto waits_less = [](const StageBreakdown& a, const StageBreakdown& b) {
    return a.bubble_s < b.bubble_s;
  };
  const auto least = std::min_element(rows.begin(), rows.end(), waits_less);
  const auto most = std::max_element(rows.begin(), rows.end(), waits_less);
  if (most->bubble_s - least->bubble_s < kUneven * report.iteration_s) return std::nullopt;
  return Stages{static_cast<int>(least - rows.begin()), static_cast<int>(most - rows.begin())};
}

// Whether a move halves one degree and doubles another. Never where experts are divided: other ranks would then hold
// them, which would be a second change.
bool is_next(const SetDegrees& to, const Strategy& strategy) {
  if (strategy.templates[0].stages[0].expert_parallel > 1) return false;
  int halved = 0, doubled = 0, same = 0;
  for (const auto& [now, then] : {std::pair{strategy.tp(), to.tp},
                                  {strategy.pp(), to.pp},
                                  {strategy.dp(), to.dp},
                                  {strategy.cp(), to.cp}}) {
    halved += then * 2 == now;
    doubled += then == now * 2;
    same += then == now;
  }
  return halved == 1 && doubled == 1 && same == 2;
}

// Whether a move replicates unlike what is already cut or replicated unlike. It keeps the number of stages, and
// the ranks: other moves take idle chips.
bool is_near(const SetStages& to, const Strategy& strategy) {
  const PipelineTemplate& pipeline = strategy.templates[0];
  if (to.layers.size() != pipeline.stages.size()) return false;
  bool is_unlike = false;
  for (std::size_t i = 0; i < to.layers.size(); ++i) {
    const Stage &stage = pipeline.stages[i], &first = pipeline.stages.front();
    if (to.tensor_parallel[i] * to.replicas[i] != stage.tensor_parallel * pipeline.replicas_of(stage))
      return false;
    is_unlike = is_unlike || stage.tensor_parallel != first.tensor_parallel ||
                pipeline.replicas_of(stage) != pipeline.replicas_of(first);
  }
  return is_unlike;
}

bool is_near(const Move& move, const Job& job, const std::optional<Stages>& uneven) {
  const Edit& edit = move.edits.front();
  if (move.kind == MoveKind::replicas) {
    const auto* stages = std::get_if<SetStages>(&edit);  // none: the micro-batch grows, too
    return stages != nullptr && is_near(*stages, job.strategy);
  }
  if (const auto* recompute = std::get_if<SetRecompute>(&edit))
    return recompute->recompute != Recompute::alternate;
  if (const auto* zero = std::get_if<SetZero>(&edit)) return std::abs(zero->zero - job.strategy.zero) == 1;
  if (const auto* to = std::get_if<SetMicroBatch>(&edit)) {
    const std::int64_t now = common_micro_batch(job);
    return to->micro_batch == now * 2 || to->micro_batch * 2 == now;
  }
  if (const auto* shift = std::get_if<ShiftLayers>(&edit))
    return uneven && shift->from == uneven->waits_least && shift->to == uneven->waits_most;
  if (const auto* degrees = std::get_if<SetDegrees>(&edit)) return is_next(*degrees, job.strategy);
  return true;
}

// The kinds of moves that may shorten a purpose, the likeliest first.
std::vector<MoveKind> kinds_against(Purpose purpose) {
  switch (purpose) {
    case Purpose::compute:
      return {MoveKind::micro_batch, MoveKind::degrees};
    case Purpose::recompute:
      return {MoveKind::recompute};
    case Purpose::bubble:
      return {MoveKind::schedule, MoveKind::virtual_stages, MoveKind::micro_batch, MoveKind::layers,
              MoveKind::degrees};
    case Purpose::tensor_parallel:
      return {MoveKind::sequence_parallel, MoveKind::degrees};
    case Purpose::expert_parallel:
      return {MoveKind::expert_overlap, MoveKind::experts, MoveKind::degrees};
    case Purpose::pipeline:
      return {MoveKind::overlap, MoveKind::resharding, MoveKind::schedule, MoveKind::degrees};
    case Purpose::data_parallel:
      return {MoveKind::overlap, MoveKind::zero, MoveKind::sharding, MoveKind::micro_batch,
              MoveKind::degrees};
    case Purpose::optimizer:
      return {MoveKind::zero, MoveKind::degrees};
    case Purpose::waiting:
    case Purpose::context_parallel:
    case Purpose::offload:
      return {MoveKind::degrees};
  }
  return {};
}

// Overlap of transfers is no change against gradients, nor the other way round.
bool is_against(const Move& move, Purpose purpose) {
  const Edit& edit = move.edits.front();
  if (std::holds_alternative<SetBucketBytes>(edit)) return purpose != Purpose::pipeline;
  const auto* turn_on = std::get_if<TurnOnOverlap>(&edit);
  return turn_on == nullptr || (turn_on->overlap == OverlapEdit::p2p) == (purpose == Purpose::pipeline);
}

// A row for a change of degrees names them all.
std::string described(const Move& move, const Strategy& strategy) {
  const auto* to = std::get_if<SetDegrees>(&move.edits.front());
  if (to == nullptr) return move.what;
  const std::string cp = to->cp > 1 || strategy.cp() > 1 ? fmt::format(", cp: {}", to->cp) : "";
  return fmt::format("tp: {}, pp: {}, dp: {}{}", to->tp, to->pp, to->dp, cp);
}

}  // namespace

std::vector<Change> changes(const Job& job, const Report& report) {
  const std::optional<Stages> uneven = uneven_stages(job, report);
  std::vector<Change> list;
  for (const MoveKind kind : kTried)
    for (Move& move : moves(job, kind))
      if (is_near(move, job, uneven)) list.push_back({described(move, job.strategy), std::move(move)});
  return list;
}

std::vector<Change> changes_against_loss(const Job& job, const Report& report, std::size_t most) {
  const std::vector<Change> all = changes(job, report);
  std::vector<std::vector<const Change*>> by_kind;
  const Purpose loss = bound_by(report);
  for (const MoveKind kind : kinds_against(loss)) {
    by_kind.emplace_back();
    for (const Change& change : all)
      if (change.move.kind == kind && is_against(change.move, loss)) by_kind.back().push_back(&change);
  }
  std::vector<Change> list;
  for (std::size_t i = 0; i < all.size(); ++i)  // first the first of each kind, then the second of each
    for (const auto& changes_of_kind : by_kind)
      if (i < changes_of_kind.size() && list.size() < most) list.push_back(*changes_of_kind[i]);
  return list;
}

}  // namespace motley
