// The edits that a person can make to a job in its scenario: another value for one key of `strategy` or `train`.
// Every edit is plain data; it can be written as YAML and applied to a Job. models/plan/moves.hpp decides which edits
// are worth trying.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "models/scenario/job.hpp"

namespace motley {

// A key of the strategy holds for every stage and replaces a stage's own value.
struct SetRecompute {
  Recompute recompute = Recompute::none;  // for all layers
  bool operator==(const SetRecompute&) const = default;
};
struct SetRecomputeLayers {
  std::int64_t layers = 1;  // number of layers at the beginning of each chunk
  bool operator==(const SetRecomputeLayers&) const = default;
};
enum class OverlapEdit : std::uint8_t { p2p, gradients, parameters, experts };
struct TurnOnOverlap {
  OverlapEdit overlap = OverlapEdit::p2p;
  bool operator==(const TurnOnOverlap&) const = default;
};
// Gradients in a bucket, where gradients or parameters overlap.
struct SetBucketBytes {
  std::int64_t bytes = 1;
  bool operator==(const SetBucketBytes&) const = default;
};
struct TurnOnSequenceParallel {
  bool operator==(const TurnOnSequenceParallel&) const = default;
};
struct SetZero {
  int zero = 0;
  bool operator==(const SetZero&) const = default;
};
// Number of consecutive replicas that divide what `zero` says.
struct SetShardOver {
  std::int64_t replicas = 2;
  bool operator==(const SetShardOver&) const = default;
};
struct SetPutOff {
  PutOff put_off = PutOff::memory;
  bool operator==(const SetPutOff&) const = default;
};
struct SetReduceGradients {
  ReduceGradients when = ReduceGradients::last;
  bool operator==(const SetReduceGradients&) const = default;
};
struct SetReshardAfterForward {
  bool reshards = false;
  bool operator==(const SetReshardAfterForward&) const = default;
};
struct SetResharding {
  Resharding resharding = Resharding::direct;  // for every boundary
  bool operator==(const SetResharding&) const = default;
};
// The global batch stays: the number of micro-batches changes. All templates must have the same micro_batch.
struct SetMicroBatch {
  std::int64_t micro_batch = 1;
  bool operator==(const SetMicroBatch&) const = default;
};
// Stages with one chunk keep their layers in schedules that want one; else layers are spread anew, over the standard
// number of chunks of the schedule.
struct SetSchedule {
  Schedule schedule = Schedule::one_f_one_b;
  bool operator==(const SetSchedule&) const = default;
};
// The number of chunks of every stage. Layers are spread anew over them.
struct SetVirtualStages {
  int chunks = 2;
  bool operator==(const SetVirtualStages&) const = default;
};
// Stage `from` of the only template loses `layers` layers, and stage `to` gets as many more. The stages between keep
// their counts and pass layers on.
struct ShiftLayers {
  int from = 0, to = 0;
  std::int64_t layers = 1;
  bool operator==(const ShiftLayers&) const = default;
};
// The stages of the only template, each of one chunk: how many layers each holds, how it is cut and how often it is
// replicated. A stage has the other options of the one that held its first layer. Stages that are replicated unlike
// have no sequence parallelism.
struct SetStages {
  std::vector<std::int64_t> layers, tensor_parallel, replicas;
  bool operator==(const SetStages&) const = default;
};
// Only for jobs with is_laid_out_by_degrees(). Layers are spread anew if pipeline_parallel changes.
struct SetDegrees {
  std::int64_t tp = 1, pp = 1, dp = 1, cp = 1;
  bool operator==(const SetDegrees&) const = default;
};
// Over how many ranks of a stage experts are divided, and over how many each of them is cut; in every stage.
struct SetExperts {
  std::int64_t expert_parallel = 1, expert_tensor_parallel = 1;
  bool operator==(const SetExperts&) const = default;
};
struct SetExpertWeights {
  ExpertWeights weights = ExpertWeights::combine;
  bool operator==(const SetExpertWeights&) const = default;
};
struct SetOffload {
  Offload offload;
  bool operator==(const SetOffload&) const = default;
};

using Edit = std::variant<SetRecompute, SetRecomputeLayers, TurnOnOverlap, SetBucketBytes,
                          TurnOnSequenceParallel, SetPutOff, SetZero, SetShardOver, SetReduceGradients,
                          SetReshardAfterForward, SetResharding, SetMicroBatch, SetSchedule, SetVirtualStages,
                          ShiftLayers, SetStages, SetDegrees, SetExperts, SetExpertWeights, SetOffload>;

// Applies an edit. Throws the Refusal of a layout that is impossible; validate() checks whether the edited strategy
// is legal.
void apply(const Edit& edit, Job& job);

// The edit as YAML for a scenario whose job is `before`: "recompute: none", "layers: [15, 15]", "pipeline_parallel:
// 8, data_parallel: 2". Only degrees that change are written.
std::string to_yaml(const Edit& edit, const Job& before);

// The micro_batch of all templates; 0: they differ.
std::int64_t common_micro_batch(const Job& job);

// Number of chunks in each stage of the first template.
int chunk_count(const Strategy& strategy);

// Whether the layers of any two virtual stages differ by at most one.
bool has_even_layers(const PipelineTemplate& pipeline);

// Whether the degrees of the strategy can change without losing anything else: it has one template, whose stages name
// no groups of chips, have equal replicas and chunks, layers spread evenly over them, and are equal in all else.
// The short form with its degrees says exactly this.
bool is_laid_out_by_degrees(const Strategy& strategy);

}  // namespace motley
