// The edits of a job that a person makes in its scenario: one key of `strategy` or `train`, another value. Every edit
// is plain data; it says how it is typed, and it is applied to a Job. Which edits are worth trying is the question of
// models/plan/moves.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "models/scenario/job.hpp"

namespace motley {

// A key of the strategy holds for every stage: what a stage says of its own gives way.
struct SetRecompute {
  Recompute recompute = Recompute::none;  // of all layers
  bool operator==(const SetRecompute&) const = default;
};
struct SetRecomputeLayers {
  std::int64_t layers = 1;  // of each chunk, the first ones
  bool operator==(const SetRecomputeLayers&) const = default;
};
enum class OverlapEdit : std::uint8_t { p2p, gradients, parameters, experts };
struct TurnOnOverlap {
  OverlapEdit overlap = OverlapEdit::p2p;
  bool operator==(const TurnOnOverlap&) const = default;
};
struct TurnOnSequenceParallel {
  bool operator==(const TurnOnSequenceParallel&) const = default;
};
struct SetZero {
  int zero = 0;
  bool operator==(const SetZero&) const = default;
};
struct SetResharding {
  Resharding resharding = Resharding::direct;  // at every boundary
  bool operator==(const SetResharding&) const = default;
};
// The global batch stays: there are more or fewer micro-batches. All templates must have the same micro_batch.
struct SetMicroBatch {
  std::int64_t micro_batch = 1;
  bool operator==(const SetMicroBatch&) const = default;
};
// Schedules of one chunk a stage leave each stage its layers; the others spread them anew, in their standard chunks.
struct SetSchedule {
  Schedule schedule = Schedule::one_f_one_b;
  bool operator==(const SetSchedule&) const = default;
};
// So many layers fewer in stage `from` of the only template, so many more in stage `to`. The stages between keep their
// counts and hand layers on.
struct ShiftLayers {
  int from = 0, to = 0;
  std::int64_t layers = 1;
  bool operator==(const ShiftLayers&) const = default;
};
// Only where is_laid_out_by_degrees(). Layers are spread anew if pipeline_parallel changes.
struct SetDegrees {
  std::int64_t tp = 1, pp = 1, dp = 1;
  bool operator==(const SetDegrees&) const = default;
};
struct SetOffload {
  Offload offload;
  bool operator==(const SetOffload&) const = default;
};

using Edit = std::variant<SetRecompute, SetRecomputeLayers, TurnOnOverlap, TurnOnSequenceParallel, SetZero,
                          SetResharding, SetMicroBatch, SetSchedule, ShiftLayers, SetDegrees, SetOffload>;

// Throws the Refusal of what cannot be laid out; whether the edited strategy is legal is validate()'s question.
void apply(const Edit& edit, Job& job);

// As typed in a scenario whose job is `before`: "recompute: none", "layers: [15, 15]", "pipeline_parallel: 8,
// data_parallel: 2". Of the degrees only those that change.
std::string to_yaml(const Edit& edit, const Job& before);

// The micro_batch that all templates have; 0: they differ.
std::int64_t common_micro_batch(const Job& job);

// No two stages are more than one layer apart.
bool has_even_layers(const PipelineTemplate& pipeline);

// Whether other degrees can be given to the strategy and nothing else be lost: one template whose stages name no groups
// of chips, are replicated alike, hold one chunk of evenly many layers each, and are alike in all else. This is what
// the short form says with its degrees.
bool is_laid_out_by_degrees(const Strategy& strategy);

}  // namespace motley
