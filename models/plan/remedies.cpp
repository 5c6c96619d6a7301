// Moves that save memory, in order: from those that cost the least time to those that change the most. Each is
// compiled and its memory counted, until enough of them fit.
#include "models/plan/remedies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <optional>
#include <span>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/moves.hpp"
#include "models/plan/planned_recomputes.hpp"

namespace motley {
namespace {

// The proposals, the mildest first. Offloaded activations come with full recomputation, which leaves few of them.
enum class Mildness : std::uint8_t {
  degrees_alone,
  put_off,
  zero,
  sequence_parallel,
  recompute_modules,
  recompute,
  zero_and_recompute,
  offload_optimizer,
  offload_optimizer_and_recompute,
  offload_all_and_recompute,
  micro_batch,
};

bool recomputes_nothing(const Strategy& strategy) {
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const Stage& stage : pipeline.stages)
      if (stage.recompute.value_or(strategy.recompute) != Recompute::none) return false;
  return true;
}

// Whether these are modules that a plan may recompute, other than attention alone, in a job that recomputes nothing.
bool recomputes_modules(const Recompute& recompute, const Job& job) {
  const std::vector<Recompute> planned = planned_recomputes(job.transformer);
  return recompute.modules != 0 && recompute != Recompute::selective && recomputes_nothing(job.strategy) &&
         std::find(planned.begin(), planned.end(), recompute) != planned.end();
}

// The mildness of a move. Nothing: it saves no memory, or is not worth trying. `recomputes`: without the move all
// layers are recomputed.
std::optional<Mildness> mildness_of(std::span<const Edit> options, const Job& job, bool recomputes) {
  const bool two = options.size() == 2;  // the second one is full recomputation
  const Edit& first = options.front();
  if (const auto* zero = std::get_if<SetZero>(&first)) {
    if (zero->zero < job.strategy.zero) return std::nullopt;
    return two ? Mildness::zero_and_recompute : Mildness::zero;
  }
  if (first == Edit(SetPutOff{PutOff::memory})) return Mildness::put_off;
  if (std::holds_alternative<TurnOnSequenceParallel>(first) && !two) return Mildness::sequence_parallel;
  if (const auto* recompute = std::get_if<SetRecompute>(&first)) {
    if (recompute->recompute == Recompute::full) return Mildness::recompute;
    if (recomputes_modules(recompute->recompute, job)) return Mildness::recompute_modules;
  }
  if (const auto* offload = std::get_if<SetOffload>(&first)) {
    if (offload->offload.activations == 0)
      return two ? Mildness::offload_optimizer_and_recompute : Mildness::offload_optimizer;
    if (two || recomputes) return Mildness::offload_all_and_recompute;
  }
  if (first == Edit(SetMicroBatch{1})) return Mildness::micro_batch;
  return std::nullopt;
}

// The order of trying: first with the same degrees, then with more and more stages or larger and larger tensor
// parallelism.
struct Place {
  std::int64_t times = 1;  // factor on the stages or on the tensor-parallel degree
  bool more_tensor_parallel = false;
  Mildness mildness = Mildness::degrees_alone;
  auto operator<=>(const Place&) const = default;
};

std::optional<Place> place_of(const Move& move, const Job& job, bool recomputes) {
  Place place;
  std::span<const Edit> options = move.edits;
  if (const auto* to = std::get_if<SetDegrees>(&move.edits.front())) {
    const std::int64_t tp = job.strategy.tp(), pp = job.strategy.pp();
    const bool more_stages = to->tp == tp && to->pp > pp;
    place.more_tensor_parallel = to->pp == pp && to->tp > tp;
    if (!more_stages && !place.more_tensor_parallel) return std::nullopt;
    place.times = to->tp / tp * (to->pp / pp);
    options = options.subspan(1);
    if (options.empty()) return place;
  }
  const std::optional<Mildness> mildness = mildness_of(options, job, recomputes);
  if (!mildness) return std::nullopt;
  place.mildness = *mildness;
  return place;
}

// The moves that may save memory, in the order of trying.
std::vector<Move> candidates(const Job& job) {
  const std::vector<Move> ways_to_recompute = moves(job, MoveKind::recompute);
  const bool recomputes = std::none_of(
      ways_to_recompute.begin(), ways_to_recompute.end(),
      [](const Move& move) { return move.edits.front() == Edit(SetRecompute{Recompute::full}); });
  std::vector<std::pair<Place, Move>> placed;
  for (const MoveKind kind :
       {MoveKind::schedule, MoveKind::zero, MoveKind::sequence_parallel, MoveKind::recompute,
        MoveKind::offload, MoveKind::micro_batch, MoveKind::degrees, MoveKind::combination})
    for (Move& move : moves(job, kind))
      if (const std::optional<Place> place = place_of(move, job, recomputes))
        placed.emplace_back(*place, std::move(move));
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Move> list;
  for (auto& [place, move] : placed) list.push_back(std::move(move));
  return list;
}

// Describes a move: "tensor_parallel: 4, zero: 1 and recompute: full".
std::string described(const Move& move, const Job& job) {
  std::string text;
  for (std::size_t i = 0; i < move.edits.size(); ++i) {
    const bool after_degrees = i == 1 && std::holds_alternative<SetDegrees>(move.edits[0]);
    text += fmt::format("{}{}", i == 0 ? "" : after_degrees ? ", " : " and ", to_yaml(move.edits[i], job));
  }
  return text;
}

double share_of(std::int64_t peak, std::int64_t capacity) {
  return static_cast<double>(peak) / static_cast<double>(std::max<std::int64_t>(capacity, 1));
}

// Measures a changed job. Throws the Refusal of a job that is impossible on this cluster. Nothing: the memory of the
// nodes is too small for what it offloads.
std::optional<Remedy> measured(std::string change, const Job& job) {
  const std::vector<StageMemory> stages = memory_by_stage(compile(job), job.cluster, job.train.fragmentation);
  if (std::any_of(stages.begin(), stages.end(), [](const StageMemory& stage) {
        return stage.host_capacity > 0 && stage.host > stage.host_capacity;
      }))
    return std::nullopt;
  const auto fullest =
      std::max_element(stages.begin(), stages.end(), [](const StageMemory& a, const StageMemory& b) {
        return share_of(a.peak, a.capacity) < share_of(b.peak, b.capacity);
      });
  return Remedy{std::move(change), fullest->peak, fullest->capacity};
}

}  // namespace

std::vector<Remedy> remedies(const Job& job) {
  constexpr std::size_t kEnough = 3;
  std::vector<Remedy> tried;
  std::size_t fitting = 0;
  for (const Move& move : candidates(job)) {
    const std::optional<Job> neighbour = apply(move, job);
    if (!neighbour) continue;
    try {
      const std::optional<Remedy> remedy = measured(described(move, job), *neighbour);
      if (!remedy) continue;
      tried.push_back(*remedy);
    } catch (const Refusal&) {  // impossible on this cluster
      continue;
    }
    fitting += tried.back().fits() ? 1 : 0;
    if (fitting == kEnough) break;
  }
  return tried;
}

std::string describe(const std::vector<Remedy>& tried) {
  std::string text;
  for (const Remedy& remedy : tried) {
    if (!remedy.fits()) continue;
    text += fmt::format("{}`{}` fits with {}", text.empty() ? "" : "; ", remedy.change,
                        format_bytes(static_cast<double>(remedy.peak)));
  }
  if (!text.empty()) return text;
  const auto best = std::min_element(tried.begin(), tried.end(), [](const Remedy& a, const Remedy& b) {
    return share_of(a.peak, a.capacity) < share_of(b.peak, b.capacity);
  });
  if (best == tried.end()) return "use chips with more memory, or more chips";
  return fmt::format(
      "none of the {} changes that were tried fits; nearest is `{}` with {} on a chip of {}; more chips "
      "would help",
      tried.size(), best->change, format_bytes(static_cast<double>(best->peak)),
      format_bytes(static_cast<double>(best->capacity)));
}

}  // namespace motley
